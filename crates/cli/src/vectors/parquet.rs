use std::fs::File;

use anyhow::{Context, Result, anyhow, bail, ensure};
use half::f16;
use parquet::basic::{LogicalType, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use super::Sample;

/// The most rows to read per vector of the sample. A column chunk must be decoded from the start of its row group.
const ROWS_PER_VECTOR: u64 = 10;
/// The least number of row groups to read, even if one has enough rows: neighboring rows are often similar.
const MIN_GROUPS: u64 = 8;
/// A bound above any real file's rows, for arithmetic without overflow.
const MAX_ROWS: u64 = 1 << 40;

/// Reads at most `most` vectors of a list column: the named one, or the only one of floating-point
/// numbers. Rows without a list are skipped.
pub(super) fn sample(file: File, name: Option<&str>, most: u64) -> Result<Sample> {
    let reader = SerializedFileReader::new(file).context("no Parquet file that can be read")?;
    let number = column(reader.metadata().file_metadata().schema_descr().columns(), name)?;
    let rows_of = |group: usize| u64::try_from(reader.metadata().row_group(group).num_rows()).unwrap_or(u64::MAX);
    let (count, sum) = (reader.num_row_groups() as u64, |a: u64, b: u64| a.saturating_add(b));
    let rows = (0..reader.num_row_groups()).map(rows_of).fold(0, sum);
    ensure!(rows <= MAX_ROWS, "{rows} rows, which is more than a file can have");
    let wanted = (count * ROWS_PER_VECTOR.saturating_mul(most).min(rows)).div_ceil(rows.max(1));
    let mut wanted = wanted.max(MIN_GROUPS.min(count));
    let (groups, in_groups) = loop {
        let groups: Vec<usize> = pages::one_of_each_part(wanted, count).map(|group| group as usize).collect();
        let in_groups = groups.iter().map(|&group| rows_of(group)).sum::<u64>();
        // The drawn row groups may be smaller than average.
        if wanted == count || in_groups >= most {
            break (groups, in_groups);
        }
        wanted = (2 * wanted).min(count);
    };
    let mut drawn = pages::one_of_each_part(most.min(in_groups), in_groups).peekable();
    let mut vectors = Vectors::new(reader.metadata().file_metadata().schema_descr().column(number).as_ref());
    let mut start = 0;
    for group in groups {
        let end = start + rows_of(group);
        let mut of_group = Vec::new();
        while let Some(row) = drawn.next_if(|&row| row < end) {
            of_group.push(row - start);
        }
        start = end;
        let found = reader.get_row_group(group).and_then(|group| group.get_column_reader(number))?;
        match found {
            ColumnReader::FloatColumnReader(reader) => vectors.read(reader, &of_group, |&x| x)?,
            ColumnReader::DoubleColumnReader(reader) => vectors.read(reader, &of_group, |&x| x as f32)?,
            ColumnReader::FixedLenByteArrayColumnReader(reader) => vectors.read(reader, &of_group, |x| {
                x.data().try_into().map_or(f32::NAN, |bytes| f16::from_le_bytes(bytes).to_f32())
            })?,
            _ => bail!("the column holds no floating-point numbers"),
        }
    }
    let Vectors { dims, rows: found, values, .. } = vectors;
    ensure!(dims > 0, "the column has no vectors");
    let share = found as f64 / most.min(in_groups).max(1) as f64;
    Ok(Sample { dims, rows: (rows as f64 * share).round() as u64, values, has_columns: true })
}

/// The index of the column.
fn column<C: AsRef<ColumnDescriptor>>(columns: &[C], wanted: Option<&str>) -> Result<usize> {
    let named = || columns.iter().map(|column| name(column.as_ref()));
    let listed = |numbers: &[usize]| {
        let names: Vec<String> = numbers.iter().map(|&number| name(columns[number].as_ref())).collect();
        names.join(", ")
    };
    if let Some(wanted) = wanted {
        let all = || listed(&(0..columns.len()).collect::<Vec<_>>());
        let missing = || anyhow!("there is no column \"{wanted}\"; there are {}", all());
        let number = named().position(|name| name == wanted).with_context(missing)?;
        let column = columns[number].as_ref();
        let kind = column.physical_type().to_string().to_lowercase();
        ensure!(column.max_rep_level() == 1, "column \"{wanted}\" holds no lists of numbers, but {kind}");
        ensure!(is_float(column), "column \"{wanted}\" holds lists of {kind}, not of floating-point numbers");
        return Ok(number);
    }
    let is_list = |&number: &usize| columns[number].as_ref().max_rep_level() == 1 && is_float(columns[number].as_ref());
    let fitting: Vec<usize> = (0..columns.len()).filter(is_list).collect();
    match fitting[..] {
        [number] => Ok(number),
        [] => bail!("there is no column of lists of floating-point numbers"),
        _ => bail!("there are several columns with vectors, {}: choose one with --column", listed(&fitting)),
    }
}

/// The column's name without the levels that the encoding of lists adds.
fn name(column: &ColumnDescriptor) -> String {
    let (parts, below) = (column.path().parts(), if column.max_rep_level() > 0 { 2 } else { 0 });
    parts[..parts.len().saturating_sub(below).max(1)].join(".")
}

fn is_float(column: &ColumnDescriptor) -> bool {
    match column.physical_type() {
        Type::FLOAT | Type::DOUBLE => true,
        Type::FIXED_LEN_BYTE_ARRAY => matches!(column.logical_type_ref(), Some(LogicalType::Float16)),
        _ => false,
    }
}

/// The vectors read so far.
struct Vectors {
    /// The definition level from which on a list has an entry, even a NULL. One less is an empty list, still less no list.
    entry: i16,
    /// 0 before the first vector.
    dims: u32,
    rows: u64,
    /// As in [`Sample`].
    values: Vec<u8>,
}

impl Vectors {
    fn new(column: &ColumnDescriptor) -> Self {
        let entry = column.max_def_level() - i16::from(column.self_type().is_optional());
        Self { entry, dims: 0, rows: 0, values: Vec::new() }
    }

    /// Reads these rows of a row group; `rows` is ascending.
    fn read<T: DataType>(
        &mut self,
        mut reader: ColumnReaderImpl<T>,
        rows: &[u64],
        to_f32: impl Fn(&T::T) -> f32,
    ) -> Result<()> {
        let (mut next, mut definitions, mut repetitions, mut numbers) = (0, Vec::new(), Vec::new(), Vec::new());
        for &row in rows {
            let gap = usize::try_from(row - next)?;
            definitions.clear();
            repetitions.clear();
            numbers.clear();
            let skipped = reader.skip_records(gap)?;
            let (read, ..) = reader.read_records(1, Some(&mut definitions), Some(&mut repetitions), &mut numbers)?;
            ensure!(skipped == gap && read == 1, "a row group has fewer rows than the file says");
            next = row + 1;
            if definitions[..].first().is_some_and(|&level| level < self.entry - 1) {
                continue;
            }
            // An empty list has a definition level, but no entry.
            let entries = definitions.iter().filter(|&&level| level >= self.entry).count();
            ensure!(entries == numbers.len(), "a list has NULL among its numbers");
            let found = u32::try_from(entries)?;
            ensure!(found > 0, "a list is empty");
            let dims = if self.rows == 0 { found } else { self.dims };
            ensure!(found == dims, "a list has {found} numbers, others {dims}");
            self.dims = dims;
            self.rows += 1;
            self.values.extend(numbers.iter().flat_map(|number| to_f32(number).to_le_bytes()));
        }
        Ok(())
    }
}
