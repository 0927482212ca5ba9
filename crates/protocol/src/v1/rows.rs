use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::V1Error;
use crate::{HEAP_TID_BYTES, TUPLES_BATCH_BYTES, Tuples};

/// The bytes of a row before its value: the heap TID and two zeros.
pub const LABEL_BYTES: usize = 8;
/// What a client sends in place of a row to end the rows: `0x31333337`.
pub const END: [u8; 4] = 0x3133_3337_u32.to_le_bytes();

/// Decodes rows from a client's bytes: labels and values of one length, without framing.
#[derive(Clone, Copy, Debug)]
pub struct RowDecoder {
    value_len: usize,
}

/// The result of decoding a client's next bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// At least one row, at most about 256 KiB of them.
    Rows(Tuples),
    /// No more rows.
    End,
    /// More bytes are needed.
    More,
}

impl RowDecoder {
    /// A decoder for values of `value_len` bytes.
    #[must_use]
    pub fn new(value_len: usize) -> Self {
        Self { value_len }
    }

    /// The length of a row in bytes.
    fn row_len(&self) -> usize {
        LABEL_BYTES + self.value_len
    }

    /// Takes the whole rows at the beginning of `buffer`, or [`END`].
    ///
    /// # Errors
    /// [`V1Error::Label`] if a row does not begin with a heap TID.
    pub fn next(&self, buffer: &mut BytesMut) -> Result<Step, V1Error> {
        let most = (TUPLES_BATCH_BYTES / self.row_len()).max(1);
        let rows = buffer.chunks_exact(self.row_len()).take(most).take_while(|row| !row.starts_with(&END)).count();
        if rows == 0 {
            if !buffer.starts_with(&END) {
                return Ok(Step::More);
            }
            buffer.advance(END.len());
            return Ok(Step::End);
        }
        let mut tids = BytesMut::with_capacity(rows * HEAP_TID_BYTES);
        let mut values = BytesMut::with_capacity(rows * self.value_len);
        for row in buffer.chunks_exact(self.row_len()).take(rows) {
            let (label, value) = row.split_at(LABEL_BYTES);
            let (tid, zeros) = label.split_at(HEAP_TID_BYTES);
            if zeros != [0, 0] {
                return Err(V1Error::Label(label.try_into().expect("LABEL_BYTES of them")));
            }
            tids.put_slice(tid);
            values.put_slice(value);
        }
        buffer.advance(rows * self.row_len());
        let count = u32::try_from(rows).expect("at most TUPLES_BATCH_BYTES");
        Ok(Step::Rows(Tuples { count, tids: tids.freeze(), lengths: Bytes::new(), values: values.freeze() }))
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Buf, BytesMut};

    use super::{END, RowDecoder, Step};
    use crate::TUPLES_BATCH_BYTES;
    use crate::v1::V1Error;

    fn row(offset: u8) -> Vec<u8> {
        vec![0, 0, 0, 0, offset, 0, 0, 0, offset, offset]
    }

    #[test]
    fn rows_are_taken_whole_however_they_arrive() {
        let stream = [row(1), row(2), row(3), END.to_vec()].concat();
        let decoder = RowDecoder::new(2);
        for piece in 1..stream.len() {
            let (mut buffer, mut taken, mut ended) = (BytesMut::new(), Vec::new(), false);
            for bytes in stream.chunks(piece) {
                buffer.extend_from_slice(bytes);
                loop {
                    match decoder.next(&mut buffer).unwrap() {
                        Step::Rows(rows) => taken.extend(rows.rows().map(|(tid, value)| (tid[4], value.to_vec()))),
                        Step::End => ended = true,
                        Step::More => break,
                    }
                }
            }
            assert_eq!(taken, [(1, vec![1, 1]), (2, vec![2, 2]), (3, vec![3, 3])]);
            assert!(ended && !buffer.has_remaining());
        }
    }

    #[test]
    fn batches_have_a_limit() {
        let decoder = RowDecoder::new(2);
        let mut buffer = BytesMut::from(&row(1).repeat(TUPLES_BATCH_BYTES / 5)[..]);
        let Ok(Step::Rows(first)) = decoder.next(&mut buffer) else { panic!("no rows") };
        assert_eq!(first.count as usize, TUPLES_BATCH_BYTES / 10);
        let one = RowDecoder::new(TUPLES_BATCH_BYTES);
        let mut buffer = BytesMut::zeroed(one.row_len());
        assert!(matches!(one.next(&mut buffer), Ok(Step::Rows(rows)) if rows.count == 1));
    }

    #[test]
    fn a_label_that_is_no_tid_is_refused() {
        let mut label = row(1);
        label[7] = 9;
        let error = RowDecoder::new(2).next(&mut BytesMut::from(&label[..])).unwrap_err();
        assert_eq!(error, V1Error::Label([0, 0, 0, 0, 1, 0, 0, 9]));
    }

    #[test]
    fn vectors_that_look_like_the_end_are_vectors() {
        let mut row = row(1);
        row.splice(8.., END);
        let mut buffer = BytesMut::from(&row[..]);
        assert!(matches!(RowDecoder::new(4).next(&mut buffer), Ok(Step::Rows(rows)) if rows.values[..] == END));
    }
}
