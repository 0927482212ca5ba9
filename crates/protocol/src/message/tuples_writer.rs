use super::TuplesBatch;
use crate::{HEAP_TID_BYTES, MAX_DATA_PAYLOAD, TUPLES_BATCH_BYTES};

/// Collects rows into one Tuples frame after another; each value is copied once, or written in place.
#[derive(Debug)]
pub struct TuplesWriter {
    varying: bool,
    tids: Vec<u8>,
    lengths: Vec<u8>,
    values: Vec<u8>,
}

impl TuplesWriter {
    /// An empty batch. With `varying`, values differ in length and their lengths are sent.
    #[must_use]
    pub fn new(varying: bool) -> Self {
        Self { varying, tids: Vec::new(), lengths: Vec::new(), values: Vec::new() }
    }

    /// Adds a row. Check [`is_full`](Self::is_full) after each.
    ///
    /// # Panics
    /// If the batch exceeds the limit of a frame, which is far above `is_full`.
    pub fn push(&mut self, tid: [u8; HEAP_TID_BYTES], value: &[u8]) {
        self.push_with(tid, |out| out.extend_from_slice(value));
    }

    /// Adds a row whose value `append` writes to the end of the batch, which saves a copy.
    ///
    /// # Panics
    /// Those of [`push`](Self::push).
    pub fn push_with(&mut self, tid: [u8; HEAP_TID_BYTES], append: impl FnOnce(&mut Vec<u8>)) {
        let start = self.values.len();
        append(&mut self.values);
        let value_len = self.values.len() - start;
        self.tids.extend_from_slice(&tid);
        if self.varying {
            let length = u32::try_from(value_len).expect("shorter than a frame");
            self.lengths.extend_from_slice(&length.to_le_bytes());
        }
        let len = self.len();
        assert!(len <= MAX_DATA_PAYLOAD, "batch of {len} bytes, {MAX_DATA_PAYLOAD} allowed");
    }

    /// The rows so far.
    #[must_use]
    pub fn batch(&self) -> TuplesBatch<'_> {
        TuplesBatch { tids: &self.tids, lengths: self.varying.then_some(&self.lengths), values: &self.values }
    }

    /// The bytes of the payload so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.batch().bytes()
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tids.is_empty()
    }

    /// Whether the batch has at least [`TUPLES_BATCH_BYTES`] and should be sent.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() >= TUPLES_BATCH_BYTES
    }

    /// Emits the frame as [`TuplesBatch::emit`] does, and begins the next batch in the same memory.
    ///
    /// # Errors
    /// Those of the `emit` callback; the batch is lost then.
    ///
    /// # Panics
    /// If there is no row.
    pub fn take<E>(&mut self, emit: impl FnMut(&[u8]) -> Result<(), E>) -> Result<u32, E> {
        let result = self.batch().emit(emit);
        self.tids.clear();
        self.lengths.clear();
        self.values.clear();
        result
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::BytesMut;

    use super::TuplesWriter;
    use crate::{ClientMessage, Frame, HEADER_BYTES, MAX_DATA_PAYLOAD, MAX_VALUE_BYTES, TUPLES_BATCH_BYTES, Tuples};

    fn frame(writer: &mut TuplesWriter) -> (BytesMut, u32) {
        let mut out = BytesMut::new();
        let crc = writer.take(|part| {
            out.extend_from_slice(part);
            Ok::<_, Infallible>(())
        });
        (out, crc.unwrap())
    }

    #[test]
    fn frames_equal_those_of_the_codec() {
        for varying in [false, true] {
            let mut writer = TuplesWriter::new(varying);
            for second in [false, true] {
                assert!(writer.is_empty(), "second batch: {second}");
                writer.push([1, 2, 3, 4, 5, 6], b"value of a");
                assert!(!writer.is_empty());
                writer.push([7; 6], if varying { b"b" } else { b"value of b" });
                let len = writer.len();
                let (mut bytes, crc) = frame(&mut writer);
                assert_eq!(bytes.len(), HEADER_BYTES + len);
                let mut again = BytesMut::new();
                let frame = Frame::decode(&mut bytes).unwrap().unwrap();
                let message = ClientMessage::from_frame(&frame).unwrap().unwrap();
                message.encode(&mut again);
                assert_eq!(Frame::decode(&mut again).unwrap().unwrap(), frame);
                assert_eq!(frame.crc, crc);
                let ClientMessage::Tuples(Tuples { count: 2, tids, lengths, .. }) = message else {
                    panic!("{message:?}")
                };
                assert_eq!((&tids[..3], lengths.is_empty()), (&[1, 2, 3][..], !varying));
            }
        }
    }

    #[test]
    fn a_batch_is_full_at_its_size() {
        let of_value = |len: usize| {
            let mut writer = TuplesWriter::new(true);
            writer.push([1; 6], &vec![0; len]);
            writer
        };
        let value = TUPLES_BATCH_BYTES - of_value(0).len();
        assert!(of_value(value).is_full());
        assert!(!of_value(value - 1).is_full());
    }

    #[test]
    fn every_row_of_a_batch_is_visited() {
        for (varying, second) in [(false, b"abc".as_slice()), (true, b"d"), (true, b"")] {
            let mut writer = TuplesWriter::new(varying);
            writer.batch().for_each(|_, _| panic!("there is no row"));
            writer.push([1; 6], b"xyz");
            writer.push([2; 6], second);
            let mut seen = Vec::new();
            writer.batch().for_each(|tid, value| seen.push((tid[0], value.to_vec())));
            assert_eq!(seen, [(1, b"xyz".to_vec()), (2, second.to_vec())]);
        }
    }

    #[test]
    fn a_full_batch_is_far_from_the_limit() {
        let mut writer = TuplesWriter::new(true);
        while !writer.is_full() {
            writer.push([0; 6], &[0; MAX_VALUE_BYTES]);
        }
        assert!(writer.len() * 4 < MAX_DATA_PAYLOAD);
    }

    #[test]
    fn an_error_of_emit_is_returned_and_the_batch_dropped() {
        let mut writer = TuplesWriter::new(false);
        writer.push([0; 6], b"x");
        assert_eq!(writer.take(|_| Err("broken pipe")), Err("broken pipe"));
        assert!(writer.is_empty());
    }
}
