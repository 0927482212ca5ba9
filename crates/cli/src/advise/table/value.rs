use anyhow::{Result, bail, ensure};
use pgvector::{MAX_SPARSEVEC_NNZ, ValueType};

/// Appends a value, encoded as in an index; `sent` is the output of its type's `send` function.
pub(super) fn decode(value_type: ValueType, dims: u32, sent: &[u8], out: &mut Vec<u8>) -> Result<()> {
    const CUT_OFF: &str = "the server has sent a value that is cut off";
    let number = |at: usize| sent.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
    let head = number(0).unwrap_or_default();
    // The header begins with the dimensions: 16 bits and a reserved field, or 32 bits.
    let (found, start) = match value_type {
        ValueType::Vector | ValueType::HalfVec => (head >> 16, 4),
        ValueType::Bit => (head, 4),
        ValueType::SparseVec => (head, 12),
    };
    ensure!(found == dims, "a value has {found} dimensions, not {dims}");
    let Some(body) = sent.get(start..) else { bail!(CUT_OFF) };
    let length = match value_type {
        ValueType::SparseVec => {
            let entries = number(4).unwrap_or_default();
            let most = MAX_SPARSEVEC_NNZ as u32;
            ensure!(entries <= most, "a value has {entries} entries, and an hnsw index takes at most {most}");
            out.extend(entries.to_le_bytes());
            8 * entries as usize
        }
        fixed => fixed.value_len(dims).unwrap_or_default(),
    };
    ensure!(body.len() == length, CUT_OFF);
    match value_type {
        ValueType::Bit => out.extend_from_slice(body),
        ValueType::HalfVec => out.extend(body.as_chunks().0.iter().flat_map(|&[a, b]| [b, a])),
        ValueType::Vector | ValueType::SparseVec => {
            out.extend(body.as_chunks().0.iter().flat_map(|&[a, b, c, d]| [d, c, b, a]));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pgvector::ValueType;

    use super::decode;

    #[test]
    fn sent_values_are_decoded_as_in_an_index() {
        for (value_type, sent, expected) in [
            (
                ValueType::Vector,
                &[0, 2, 0, 0, 0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0][..],
                &[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0][..],
            ),
            (ValueType::HalfVec, &[0, 2, 0, 0, 0x3c, 0, 0xc0, 0], &[0, 0x3c, 0, 0xc0]),
            (ValueType::Bit, &[0, 0, 0, 2, 0x80], &[0x80]),
            (
                ValueType::SparseVec,
                &[0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0x3f, 0x80, 0, 0],
                &[1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0x80, 0x3f],
            ),
        ] {
            let mut out = Vec::new();
            decode(value_type, 2, sent, &mut out).unwrap();
            assert_eq!(out, expected, "{value_type:?}");
            assert!(decode(value_type, 3, sent, &mut out).unwrap_err().to_string().contains("has 2 dimensions, not 3"));
            for end in 0..sent.len() {
                assert!(decode(value_type, 2, &sent[..end], &mut out).is_err(), "{value_type:?} {end}");
            }
        }
    }
}
