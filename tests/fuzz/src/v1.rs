use bytes::BytesMut;
use protocol::v1::{Init, RowDecoder, Step, V1Error};

use super::input::Input;

/// What a client of version 1 sends, an order and then rows without framing, decodes to the same however it is cut into pieces.
pub fn version_1(data: &[u8]) {
    let mut input = Input(data);
    let piece = 1 + usize::from(input.u8());
    let init = Init::from_bytes(&input.array());
    assert_eq!(init.to_bytes().len(), 48);
    let value_len = match init.order(false) {
        Ok(order) => order.value_type.value_len(order.dims).expect("a type of one length").min(64),
        Err(_) => 1 + input.below(32),
    };
    let stream = input.0;
    let (whole, pieces) = (decode(value_len, stream, stream.len().max(1)), decode(value_len, stream, piece));
    match (whole, pieces) {
        ((rows, None), pieces) => assert_eq!((rows, None), pieces),
        // In smaller pieces, rows before the invalid one were accepted already.
        ((rows, Some(_)), (more, Some(_))) => assert!(more.starts_with(&rows)),
        (whole, pieces) => panic!("{whole:?} {pieces:?}"),
    }
}

/// Rows as heap TID and value, and the error that ended them, if any.
type Decoded = (Vec<(Vec<u8>, Vec<u8>)>, Option<V1Error>);

fn decode(value_len: usize, stream: &[u8], piece: usize) -> Decoded {
    let decoder = RowDecoder::new(value_len);
    let (mut rows, mut buffer) = (Vec::new(), BytesMut::new());
    for bytes in stream.chunks(piece) {
        buffer.extend_from_slice(bytes);
        loop {
            match decoder.next(&mut buffer) {
                Ok(Step::Rows(tuples)) => {
                    rows.extend(tuples.rows().map(|(tid, value)| (tid.to_vec(), value.to_vec())));
                }
                Ok(Step::End) => return (rows, None),
                Ok(Step::More) => break,
                Err(error) => return (rows, Some(error)),
            }
        }
    }
    (rows, None)
}
