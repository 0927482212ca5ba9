//! Bytes as hexadecimal digits.

use std::io;

use ring::rand::{SecureRandom, SystemRandom};

/// `N` random bytes; an error if the system has none.
pub(crate) fn random<const N: usize>() -> io::Result<String> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the system has no random bytes"))?;
    Ok(hex(&bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    pairs.iter().map(|[high, low]| u8::try_from(16 * digit(*high)? + digit(*low)?).ok()).collect()
}
