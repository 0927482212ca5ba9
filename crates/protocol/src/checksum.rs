/// A checksum of the sequence of frames, which changes if a frame is lost, repeated or moved.
///
/// CRC32C over the `crc` field (4 bytes, little-endian) of each frame in order, so the data itself is read only once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamChecksum(u32);

impl StreamChecksum {
    /// The checksum of no frame: 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next frame by the checksum in its header.
    pub fn add(&mut self, frame_crc: u32) {
        self.0 = crc32c::crc32c_append(self.0, &frame_crc.to_le_bytes());
    }

    /// The checksum of the frames so far.
    #[must_use]
    pub fn value(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::StreamChecksum;

    #[test]
    fn order_and_count_matter() {
        let of = |crcs: &[u32]| {
            let mut sum = StreamChecksum::new();
            crcs.iter().for_each(|&crc| sum.add(crc));
            sum.value()
        };
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[1, 2]), crc32c::crc32c(&[1, 0, 0, 0, 2, 0, 0, 0]));
        assert_ne!(of(&[1, 2]), of(&[2, 1]));
        assert_ne!(of(&[0]), of(&[0, 0]));
    }
}
