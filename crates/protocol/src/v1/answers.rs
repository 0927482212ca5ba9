use super::{ACK, ERROR_MAGIC};

/// The length of an error before its text: the magic and the length of the text.
const ERROR_HEAD: usize = 8;
/// The length of the result head: the two numbers before the file.
const RESULT_HEAD: usize = 16;
/// After [`ACK`] and the result head, bytes are only counted.
const LOOK: usize = ACK.len() + RESULT_HEAD;

/// How the answers of a builder to a Lantern client ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With the complete file of the index.
    File,
    /// With an error.
    Error,
}

/// Tracks a builder's answers to a Lantern client, to distinguish a complete file from a broken stream.
#[derive(Debug, Default)]
pub struct Answers {
    head: Vec<u8>,
    passed: u64,
}

impl Answers {
    /// Takes the next bytes.
    pub fn pass(&mut self, bytes: &[u8]) {
        self.head.extend(bytes.iter().take(LOOK - self.head.len()));
        self.passed += bytes.len() as u64;
    }

    /// How the answers ended; `None` until all bytes have come.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        let (length, ending) = self.whole()?;
        (self.passed == length).then_some(ending)
    }

    /// The length of the whole stream and how it ends, once the bytes received say so.
    fn whole(&self) -> Option<(u64, Ending)> {
        let error_at = |at: usize| {
            let rest = self.head.get(at..)?.strip_prefix(&ERROR_MAGIC)?;
            let text = u32::from_le_bytes(*rest.first_chunk()?);
            Some(((at + ERROR_HEAD) as u64 + u64::from(text), Ending::Error))
        };
        error_at(0).or_else(|| error_at(ACK.len())).or_else(|| {
            let file = self.head.get(ACK.len() + 8..)?.first_chunk()?;
            Some(((LOOK as u64).checked_add(u64::from_le_bytes(*file))?, Ending::File))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Answers, Ending, LOOK};
    use crate::v1::{ACK, error_frame, result_head};

    #[test]
    fn answers_end_only_when_all_their_bytes_have_come() {
        let file = [&ACK[..], &result_head(2, 100), &[7; 100]].concat();
        let late = [&ACK[..], &error_frame("no memory")].concat();
        for (bytes, ending) in [(file, Ending::File), (late, Ending::Error), (error_frame("no"), Ending::Error)] {
            for split in 0..bytes.len() {
                let mut answers = Answers::default();
                answers.pass(&bytes[..split]);
                assert_eq!(answers.ending(), None, "{split} of {}", bytes.len());
                answers.pass(&bytes[split..]);
                assert_eq!(answers.ending(), Some(ending));
                answers.pass(&[0]);
                assert_eq!(answers.ending(), None, "more than there is");
                assert!(answers.head.len() <= LOOK, "the file is not kept");
            }
        }
    }
}
