use super::ERROR_MAGIC;

/// The answer to [`Init`](super::Init). Nothing may follow it before the rows have ended.
pub const ACK: [u8; 1] = [0];

/// The most bytes of an error's text. Clients copy it into a buffer of 1024 bytes without checking its length.
pub const MAX_ERROR_TEXT: usize = 990;

/// What precedes the file: its number of nodes and its length in bytes. To be sent in one segment, as clients do not loop on
/// short reads.
#[must_use]
pub fn result_head(nodes: u64, file_bytes: u64) -> [u8; 16] {
    let mut head = [0; 16];
    head[..8].copy_from_slice(&nodes.to_le_bytes());
    head[8..].copy_from_slice(&file_bytes.to_le_bytes());
    head
}

/// An error, to be sent in one segment where [`ACK`] or [`result_head`] is due, and nowhere else: clients do not read while
/// they send rows, and would take it for a part of the file later. The text ends at its first NUL, or at [`MAX_ERROR_TEXT`]
/// bytes.
#[must_use]
pub fn error_frame(text: &str) -> Vec<u8> {
    let text = text.split('\0').next().unwrap_or_default();
    let text = &text[..text.floor_char_boundary(MAX_ERROR_TEXT)];
    let length = u32::try_from(text.len() + 1).expect("at most MAX_ERROR_TEXT");
    // Clients print what they received as a C string, so the NUL is part of it.
    [&ERROR_MAGIC, &length.to_le_bytes(), text.as_bytes(), &[0]].concat()
}

#[cfg(test)]
mod tests {
    use super::{MAX_ERROR_TEXT, error_frame, result_head};

    #[test]
    fn errors_fit_the_clients_buffer_and_end_with_nul() {
        assert_eq!(error_frame("no"), b"\x37\x33\x33\x37\x03\0\0\0no\0");
        assert_eq!(error_frame("seen\0hidden"), error_frame("seen"));
        let long = error_frame(&"ö".repeat(4000));
        assert_eq!(long.len(), 8 + MAX_ERROR_TEXT + 1);
        // The client reads up to 1024 bytes at once and copies what follows the head.
        assert!(long.len() < 1024 && long.ends_with(&[0]));
        assert_eq!(u32::from_le_bytes(long[4..8].try_into().unwrap()) as usize, long.len() - 8);
    }

    #[test]
    fn count_comes_before_size() {
        assert_eq!(result_head(1, 230), [1, 0, 0, 0, 0, 0, 0, 0, 230, 0, 0, 0, 0, 0, 0, 0]);
    }
}
