use anyhow::{Context, Result, ensure};

/// Dimensions and values of a `.fvecs` file. Each vector is its dimensions as i32, then its values as f32, all little-endian.
pub(crate) fn parse(bytes: &[u8]) -> Result<(usize, Vec<f32>)> {
    let (words, rest) = bytes.as_chunks::<4>();
    let dims = words.first().map(|word| i32::from_le_bytes(*word)).context("the file is empty")?;
    let width = usize::try_from(dims).ok().filter(|&dims| dims > 0).context("no dimensions")?;
    let even = rest.is_empty() && words.len().is_multiple_of(width + 1);
    ensure!(even, "{} bytes are no vectors of {width} dimensions", bytes.len());
    let mut values = Vec::with_capacity(words.len() / (width + 1) * width);
    for (row, words) in words.chunks_exact(width + 1).enumerate() {
        let found = i32::from_le_bytes(words[0]);
        ensure!(found == dims, "vector {row} has {found} dimensions, the first one {dims}");
        values.extend(words[1..].iter().map(|word| f32::from_le_bytes(*word)));
    }
    Ok((width, values))
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn encode(rows: &[&[f32]]) -> Vec<u8> {
        let row = |row: &&[f32]| {
            let values = row.iter().flat_map(|x| x.to_le_bytes());
            (row.len() as i32).to_le_bytes().into_iter().chain(values).collect::<Vec<u8>>()
        };
        rows.iter().flat_map(row).collect()
    }

    #[test]
    fn reads_vectors_and_refuses_nonsense() {
        let bytes = encode(&[&[1.0, 2.0], &[3.0, 4.0]]);
        assert_eq!(parse(&bytes).unwrap(), (2, vec![1.0, 2.0, 3.0, 4.0]));
        for broken in [&[][..], &[0; 8], &bytes[..20], &[255; 12], &encode(&[&[1.0, 2.0], &[3.0], &[]])] {
            assert!(parse(broken).is_err(), "{broken:?}");
        }
    }
}
