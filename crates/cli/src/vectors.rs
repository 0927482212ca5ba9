//! Reads a sample of the vectors in a file: `.npy`, `.fvecs` or Parquet.

#[cfg(feature = "parquet")]
mod parquet;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use half::f16;

/// The most bytes of a `.npy` header; longer ones do not describe an array of plain numbers.
const MAX_HEADER: usize = 1 << 16;

/// A sample of a file's vectors.
pub struct Sample {
    pub dims: u32,
    /// The number of vectors in the file; an estimate if rows can be NULL.
    pub rows: u64,
    /// The values of the sample, as f32, one vector after the other.
    pub values: Vec<u8>,
    /// Whether the file has named columns.
    pub has_columns: bool,
}

/// The layout of the vectors in a file.
struct Layout {
    dims: u64,
    rows: u64,
    /// Bytes before the first vector.
    start: u64,
    /// Bytes before the numbers of each vector.
    head: u64,
    number: Number,
}

#[derive(Clone, Copy)]
enum Number {
    F16,
    F32,
    U8,
}

impl Number {
    fn bytes(self) -> u64 {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
            Self::U8 => 1,
        }
    }

    fn to_f32(self, numbers: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::F16 => {
                let halves = numbers.as_chunks().0.iter().map(|&bytes| f16::from_le_bytes(bytes).to_f32());
                out.extend(halves.flat_map(f32::to_le_bytes));
            }
            Self::F32 => out.extend_from_slice(numbers),
            Self::U8 => out.extend(numbers.iter().flat_map(|&number| f32::from(number).to_le_bytes())),
        }
    }
}

/// Reads at most `most` vectors from all parts of a file; `column` names one of a Parquet file, other files have none.
pub fn sample(path: &Path, column: Option<&str>, most: u64) -> Result<Sample> {
    let mut file = File::open(path)?;
    let is = |name: &str| path.extension().is_some_and(|extension| extension == name);
    let has_columns = is("parquet") || starts_with(&mut file, b"PAR1")?;
    let sample = if has_columns {
        of_parquet(file, column, most)?
    } else {
        let length = file.metadata()?.len();
        let layout = if is("fvecs") { fvecs(&mut file, length)? } else { npy(&mut file, length)? };
        of_rows(&mut file, &layout, most)?
    };
    let finite = sample.values.as_chunks().0.iter().all(|&bytes| f32::from_le_bytes(bytes).is_finite());
    ensure!(finite, "there are values that are infinite or no numbers");
    Ok(sample)
}

#[cfg(feature = "parquet")]
use parquet::sample as of_parquet;

#[cfg(not(feature = "parquet"))]
fn of_parquet(_: File, _: Option<&str>, _: u64) -> Result<Sample> {
    bail!(
        "this lantern-index was built without the feature parquet, which its packages and `cargo build -p lantern-index` have"
    )
}

/// Whether a file begins with these bytes. Rewinds it.
fn starts_with(file: &mut File, bytes: &[u8]) -> Result<bool> {
    let mut first = Vec::new();
    file.take(bytes.len() as u64).read_to_end(&mut first)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(first == bytes)
}

/// Reads vectors of equal length that follow one another in the file.
fn of_rows(file: &mut File, layout: &Layout, most: u64) -> Result<Sample> {
    let &Layout { dims, rows, start, head, number } = layout;
    ensure!(rows > 0 && dims > 0, "the file has no vectors");
    let dims32 = u32::try_from(dims).context("too many dimensions")?;
    let width = head + dims * number.bytes();
    let mut values = Vec::new();
    let mut vector = vec![0; usize::try_from(width)?];
    for row in pages::one_of_each_part(most.min(rows), rows) {
        file.seek(SeekFrom::Start(start + row * width))?;
        file.read_exact(&mut vector)?;
        let (before, numbers) = vector.split_at(head as usize);
        let found = before.as_chunks().0.first().map(|&bytes| i32::from_le_bytes(bytes));
        ensure!(
            found.is_none_or(|found| i64::from(found) == dims as i64),
            "vector {row} has other dimensions than {dims}"
        );
        number.to_f32(numbers, &mut values);
    }
    Ok(Sample { dims: dims32, rows, values, has_columns: false })
}

/// `.fvecs`: each vector is its dimensions as i32, then its values as f32, all little-endian.
fn fvecs(file: &mut File, length: u64) -> Result<Layout> {
    let mut first = [0; 4];
    file.read_exact(&mut first).context("the file is empty")?;
    let dims = u64::try_from(i32::from_le_bytes(first)).ok().filter(|&dims| dims > 0).context("no .fvecs file")?;
    let width = 4 * (dims + 1);
    ensure!(length.is_multiple_of(width), "{length} bytes are no vectors of {dims} dimensions");
    Ok(Layout { dims, rows: length / width, start: 0, head: 4, number: Number::F32 })
}

/// A NumPy array of two dimensions in C order.
fn npy(file: &mut File, length: u64) -> Result<Layout> {
    let mut magic = [0; 8];
    file.read_exact(&mut magic).context("no .npy, .fvecs or Parquet file")?;
    ensure!(magic.starts_with(b"\x93NUMPY"), "no .npy, .fvecs or Parquet file");
    let (mut short, mut long) = ([0; 2], [0; 4]);
    let header = if magic[6] == 1 {
        file.read_exact(&mut short)?;
        usize::from(u16::from_le_bytes(short))
    } else {
        file.read_exact(&mut long)?;
        usize::try_from(u32::from_le_bytes(long))?
    };
    ensure!(header <= MAX_HEADER, "the header has {header} bytes");
    let start = 8 + if magic[6] == 1 { 2 } else { 4 } + header as u64;
    let mut text = vec![0; header];
    file.read_exact(&mut text).context("the header is cut off")?;
    let text = std::str::from_utf8(&text)?;
    ensure!(text.contains("'fortran_order': False"), "the array is not stored row by row");
    let number = match () {
        () if text.contains("'<f4'") => Number::F32,
        () if text.contains("'<f2'") => Number::F16,
        () if text.contains("'|u1'") => Number::U8,
        () => bail!("the numbers are neither <f4, <f2 nor |u1: {}", text.trim()),
    };
    let shape = text.split_once("'shape': (").and_then(|(_, rest)| rest.split_once(')')).context("no shape")?.0;
    let shape: Vec<u64> = shape.split(',').filter_map(|part| part.trim().parse().ok()).collect();
    let [rows, dims] = shape[..] else { bail!("an array of {} dimensions, there must be two", shape.len()) };
    let bytes = rows.checked_mul(dims).and_then(|numbers| numbers.checked_mul(number.bytes()));
    ensure!(bytes == length.checked_sub(start), "{rows} x {dims} do not fill the file");
    Ok(Layout { dims, rows, start, head: 0, number })
}
