use std::fmt;

/// A PostgreSQL error code of a class that means failure.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlState([u8; 5]);

impl SqlState {
    /// The connection broke or the peer fell silent.
    pub const CONNECTION_FAILURE: Self = Self(*b"08006");
    /// The peer sent something this protocol does not allow.
    pub const PROTOCOL_VIOLATION: Self = Self(*b"08P01");
    /// The type, metric or version is not served.
    pub const FEATURE_NOT_SUPPORTED: Self = Self(*b"0A000");
    /// A value is not one that pgvector would store.
    pub const DATA_EXCEPTION: Self = Self(*b"22000");
    /// A parameter is outside its limits.
    pub const INVALID_PARAMETER: Self = Self(*b"22023");
    /// The token is missing or wrong.
    pub const INVALID_AUTHORIZATION: Self = Self(*b"28000");
    /// The build does not fit into the builder's memory.
    pub const OUT_OF_MEMORY: Self = Self(*b"53200");
    /// The builder has no room for the build's values on disk.
    pub const DISK_FULL: Self = Self(*b"53100");
    /// The builder serves as many clients as it may.
    pub const TOO_MANY_CONNECTIONS: Self = Self(*b"53300");
    /// What is there does not suffice for what is asked.
    pub const OBJECT_NOT_IN_PREREQUISITE_STATE: Self = Self(*b"55000");
    /// More dimensions or rows than can be served.
    pub const PROGRAM_LIMIT_EXCEEDED: Self = Self(*b"54000");
    /// The client cancelled, or the operator did.
    pub const QUERY_CANCELED: Self = Self(*b"57014");
    /// The builder is shutting down.
    pub const ADMIN_SHUTDOWN: Self = Self(*b"57P01");
    /// The builder cannot take the build now; it is worth trying again.
    pub const CANNOT_CONNECT_NOW: Self = Self(*b"57P03");
    /// A defect of the builder.
    pub const INTERNAL_ERROR: Self = Self(*b"XX000");
    /// A checksum or count does not match.
    pub const DATA_CORRUPTED: Self = Self(*b"XX001");

    /// A code of five digits and capital letters; `None` for others and for the classes that do not mean failure
    /// (00 success, 01 warning, 02 no data), so that a peer cannot make an error look like something else.
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
        assert_eq!(SqlState::new(*b"0A000").unwrap().as_str(), "0A000");
        for bad in [b"00000", b"01000", b"02000", b"xx000", b"5701 ", b"\xff\xff\xff\xff\xff"] {
            assert_eq!(SqlState::new(*bad), None, "{bad:?}");
        }
    }
}
