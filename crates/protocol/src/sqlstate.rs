use std::fmt;

/// A PostgreSQL error code, of a class for errors.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlState([u8; 5]);

impl SqlState {
    /// The connection broke, or the peer was silent for too long.
    pub const CONNECTION_FAILURE: Self = Self(*b"08006");
    /// The peer broke a rule of the protocol.
    pub const PROTOCOL_VIOLATION: Self = Self(*b"08P01");
    /// The builder does not support the type, metric or version.
    pub const FEATURE_NOT_SUPPORTED: Self = Self(*b"0A000");
    /// A value that pgvector would not store.
    pub const DATA_EXCEPTION: Self = Self(*b"22000");
    /// A parameter is outside its limits.
    pub const INVALID_PARAMETER: Self = Self(*b"22023");
    /// The token is missing or wrong.
    pub const INVALID_AUTHORIZATION: Self = Self(*b"28000");
    /// The build does not fit into the builder's memory.
    pub const OUT_OF_MEMORY: Self = Self(*b"53200");
    /// The builder's disk has no space left for the values of the build.
    pub const DISK_FULL: Self = Self(*b"53100");
    /// The client has as many waiting builds as its limit allows.
    pub const TOO_MANY_CONNECTIONS: Self = Self(*b"53300");
    /// The sample has too few rows or queries for advice.
    pub const OBJECT_NOT_IN_PREREQUISITE_STATE: Self = Self(*b"55000");
    /// More dimensions or rows than the builder supports.
    pub const PROGRAM_LIMIT_EXCEEDED: Self = Self(*b"54000");
    /// The client or the operator has cancelled the build.
    pub const QUERY_CANCELED: Self = Self(*b"57014");
    /// An operator's action ended the statement.
    pub const OPERATOR_INTERVENTION: Self = Self(*b"57000");
    /// The builder is shutting down.
    pub const ADMIN_SHUTDOWN: Self = Self(*b"57P01");
    /// The builder cannot take the build now; trying again may help.
    pub const CANNOT_CONNECT_NOW: Self = Self(*b"57P03");
    /// A defect of the builder.
    pub const INTERNAL_ERROR: Self = Self(*b"XX000");
    /// A checksum or count does not match.
    pub const DATA_CORRUPTED: Self = Self(*b"XX001");

    /// A code of five digits and capital letters; `None` for others, and for classes 00 (success), 01 (warning) and 02 (no
    /// data), so that a peer cannot disguise an error.
    #[must_use]
    pub fn new(code: [u8; 5]) -> Option<Self> {
        let well_formed = code.iter().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
        let failure = !matches!(&code, [b'0', b'0'..=b'2', ..]);
        (well_formed && failure).then_some(Self(code))
    }

    /// The code as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits and capital letters are ASCII")
    }

    /// The code as bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 5] {
        self.0
    }
}

impl fmt::Display for SqlState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SqlState({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::SqlState;

    #[test]
    fn only_codes_of_failures_are_taken() {
        assert_eq!(SqlState::new(*b"57014"), Some(SqlState::QUERY_CANCELED));
        let unsupported = SqlState::new(*b"0A000").unwrap();
        assert_eq!((unsupported.as_str(), unsupported.to_string()), ("0A000", "0A000".to_owned()));
        for bad in [b"00000", b"01000", b"02000", b"xx000", b"5701 ", b"\xff\xff\xff\xff\xff"] {
            assert_eq!(SqlState::new(*bad), None, "{bad:?}");
        }
    }
}
