//! `advise` of Parquet files.
#![cfg(feature = "parquet")]

mod support;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use half::f16;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{DataType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, FloatType, Int32Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::Value;
use support::command;
use tempfile::TempDir;

const DIMS: usize = 8;

fn list(name: &str, element: &str) -> String {
    format!("optional group {name} (LIST) {{ repeated group list {{ optional {element} element; }} }}")
}

/// The columns of a file, in the syntax of Parquet schemas.
fn schema(columns: &[String]) -> String {
    format!("message rows {{ {} }}", columns.join(" "))
}

/// A list that may contain NULL or be empty, or no list.
#[derive(Clone)]
enum Row<T> {
    Null,
    List(Vec<Option<T>>),
}

/// Writes a file whose columns all have these rows, in row groups of `per_group` rows.
fn write<T: DataType>(path: &Path, schema: &str, rows: &[Row<T::T>], per_group: usize, compression: Compression) {
    write_groups::<T>(path, schema, &rows.chunks(per_group).collect::<Vec<_>>(), compression);
}

/// Writes a file whose columns all have these row groups.
fn write_groups<T: DataType>(path: &Path, schema: &str, groups: &[&[Row<T::T>]], compression: Compression) {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = WriterProperties::builder().set_compression(compression).set_data_page_row_count_limit(100);
    let file = File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build())).unwrap();
    for &rows in groups {
        let (mut values, mut definitions, mut repetitions) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            match row {
                Row::Null => definitions.push(0),
                Row::List(list) if list.is_empty() => definitions.push(1),
                Row::List(list) => definitions.extend(list.iter().map(|number| if number.is_some() { 3 } else { 2 })),
            }
            repetitions.resize(definitions.len(), 1);
            let length = if let Row::List(list) = row { list.len().max(1) } else { 1 };
            let first = repetitions.len() - length;
            repetitions[first] = 0;
            if let Row::List(list) = row {
                values.extend(list.iter().flatten().cloned());
            }
        }
        let mut group = writer.next_row_group().unwrap();
        while let Some(mut column) = group.next_column().unwrap() {
            column.typed::<T>().write_batch(&values, Some(&definitions), Some(&repetitions)).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
}

/// Vectors without periodic patterns.
fn vectors<T>(rows: usize, number: impl Fn(f32) -> T) -> Vec<Row<T>> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some(number((state >> 8) as f32 / f32::from(1u16 << 15) - 256.0))
    };
    (0..rows).map(|_| Row::List((0..DIMS).map(|_| next()).collect())).collect()
}

/// Runs `advise`; returns exit code, stdout and stderr.
fn advise(path: &Path, arguments: &str) -> (i32, String, String) {
    let output = command().arg("advise").arg(path).args(arguments.split_whitespace()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn json(path: &Path, arguments: &str) -> Value {
    let (code, out, err) = advise(path, &format!("--json --metric l2 --target-recall 0.8 {arguments}"));
    assert_eq!(code, 0, "{}: {err}", path.display());
    serde_json::from_str(&out).unwrap()
}

#[test]
fn all_number_types_and_compressions_are_read() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(format!("{name}.parquet"));
    let of = |element: &str| schema(&[list("embedding", element)]);
    let floats = vectors(2000, |x| x);
    for (name, compression) in [
        ("plain", Compression::UNCOMPRESSED),
        ("snappy", Compression::SNAPPY),
        ("zstd", Compression::ZSTD(ZstdLevel::default())),
        ("lz4", Compression::LZ4_RAW),
    ] {
        write::<FloatType>(&path(name), &of("float"), &floats, 700, compression);
    }
    let doubles = vectors(2000, f64::from);
    write::<DoubleType>(&path("double"), &of("double"), &doubles, 2000, Compression::SNAPPY);
    let half = |x: f32| FixedLenByteArray::from(f16::from_f32(x).to_le_bytes().to_vec());
    let halves = of("fixed_len_byte_array(2)").replace("(2) element", "(2) element (FLOAT16)");
    write::<FixedLenByteArrayType>(&path("half"), &halves, &vectors(2000, half), 500, Compression::SNAPPY);
    let plain = json(&path("plain"), "");
    assert_eq!((plain["rows"].as_u64(), plain["queries"].as_u64()), (Some(2000), Some(200)));
    for name in ["snappy", "zstd", "lz4", "double", "half"] {
        let found = json(&path(name), "");
        let sizes = |answer: &Value| {
            let all = answer["choices"].as_array().unwrap().iter();
            all.map(|choice| choice["index_bytes"].as_u64()).collect::<Vec<_>>()
        };
        assert_eq!(found["rows"], plain["rows"], "{name}");
        if name != "half" {
            assert_eq!(sizes(&found), sizes(&plain), "{name}: other vectors");
        }
    }
    // The file with queries may be of another kind, also of one without columns.
    let queries = format!("--queries {} --column embedding", path("double").display());
    assert_eq!(json(&path("plain"), &queries)["queries"].as_u64(), Some(500));
    let fvecs = dir.path().join("queries.fvecs");
    let query = [(DIMS as u32).to_le_bytes().to_vec(), [1f32; DIMS].map(f32::to_le_bytes).concat()].concat();
    fs::write(&fvecs, query.repeat(60)).unwrap();
    let queries = format!("--queries {} --column embedding", fvecs.display());
    assert_eq!(json(&path("plain"), &queries)["queries"].as_u64(), Some(60));
    let (code, _, said) = advise(&fvecs, "--column embedding");
    assert!(code == 64 && said.contains("--column is for tables and Parquet files"), "{code} {said}");
}

#[test]
fn a_sample_of_a_large_file_is_of_all_its_parts() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("rows");
    // Rows without a vector do not count as rows of an index.
    let mut rows = vectors(30_000, |x| x);
    rows.iter_mut().step_by(3).for_each(|row| *row = Row::Null);
    write::<FloatType>(&path, &schema(&[list("v", "float")]), &rows, 1000, Compression::SNAPPY);
    let found = json(&path, "--max-rows 2k");
    let (rows, tried) = (found["rows"].as_u64().unwrap(), found["tried"].as_u64().unwrap());
    assert!((18_500..21_500).contains(&rows) && tried < 1500, "{found}");
}

#[test]
fn a_sample_has_eight_row_groups_and_enough_rows() {
    let dir = TempDir::new().unwrap();
    let (path, schema) = (dir.path().join("rows"), schema(&[list("v", "float")]));
    // The first 4 of 16 row groups have no vectors. Three groups would have enough rows; one of each
    // pair is read, which gives the file's share.
    let rows = [vec![Row::Null; 20_000], vectors(60_000, |x| x)].concat();
    write::<FloatType>(&path, &schema, &rows, 5000, Compression::SNAPPY);
    let found = json(&path, "--max-rows 1500");
    assert_eq!(found["rows"].as_u64(), Some(60_000), "{found}");
    // One large row group among small ones, and not among those drawn first.
    let rows = vectors(41_260, |x| x);
    let (small, large) = rows.split_at(1260);
    let mut groups: Vec<_> = small.chunks(20).collect();
    groups.insert(1, large);
    write_groups::<FloatType>(&path, &schema, &groups, Compression::SNAPPY);
    let found = json(&path, "--max-rows 1500");
    assert_eq!(found["tried"].as_u64(), Some(1350), "{found}");
}

#[test]
fn one_of_several_columns_must_be_named() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("two.parquet");
    let two = schema(&[list("title", "float"), list("body", "float")]);
    write::<FloatType>(&path, &two, &vectors(1200, |x| x), 1200, Compression::SNAPPY);
    assert_eq!(json(&path, "--column body")["rows"].as_u64(), Some(1200));
    for (arguments, text) in [
        ("", "there are several columns with vectors, title, body: choose one with --column"),
        ("--column embedding", "there is no column \"embedding\"; there are title, body"),
    ] {
        let (code, _, said) = advise(&path, arguments);
        assert!(code == 64 && said.contains(text), "{arguments}: {code} {said}");
    }
}

#[test]
fn unusable_parquet_files_have_exit_code_64() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(format!("{name}.parquet"));
    let floats = |name: &str, rows: &[Row<f32>]| -> PathBuf {
        write::<FloatType>(&path(name), &schema(&[list("v", "float")]), rows, 5000, Compression::SNAPPY);
        path(name)
    };
    let good = vectors(1200, |x| x);
    let with = |row: Row<f32>| [&good[..], &[row]].concat();
    let whole = fs::read(floats("whole", &good)).unwrap();
    let bytes = |name: &str, bytes: &[u8]| {
        fs::write(path(name), bytes).unwrap();
        path(name)
    };
    let middle = whole.len() / 2;
    let mut damaged = whole.clone();
    damaged[middle - 500..middle].fill(0xff);
    let ints = path("ints");
    write::<Int32Type>(&ints, &schema(&[list("v", "int32")]), &vectors(1200, |x| x as i32), 1200, Compression::SNAPPY);
    let scalar = path("scalar");
    let (one, none) = ("message rows { required float x; }", Vec::<Row<f32>>::new());
    write::<FloatType>(&scalar, one, &none, 1, Compression::SNAPPY);
    for (path, arguments, text) in [
        (bytes("empty", b""), "", "no Parquet file that can be read"),
        (bytes("cut", &whole[..middle]), "", "no Parquet file that can be read"),
        (bytes("damaged", &damaged), "", "damaged.parquet: "),
        (floats("ragged", &with(Row::List(vec![Some(1.0); 3]))), "", "a list has 3 numbers, others 8"),
        (floats("hollow", &with(Row::List(Vec::new()))), "", "a list is empty"),
        (floats("null", &with(Row::List([vec![Some(1.0); 7], vec![None]].concat()))), "", "NULL among its numbers"),
        (floats("nan", &with(Row::List(vec![Some(f32::NAN); 8]))), "", "infinite or no numbers"),
        (floats("nothing", &vec![Row::Null; 1200]), "", "the column has no vectors"),
        (floats("none", &[]), "", "the column has no vectors"),
        (floats("few", &good[..400]), "", "400 rows with values are too few for advice"),
        (ints.clone(), "", "no column of lists of floating-point numbers"),
        (ints, "--column v", "column \"v\" holds lists of int32"),
        (scalar.clone(), "", "no column of lists of floating-point numbers"),
        (scalar, "--column x", "column \"x\" holds no lists of numbers, but float"),
    ] {
        let (code, _, said) = advise(&path, arguments);
        assert!(code == 64 && said.contains(text), "{}: {code} {said}", path.display());
    }
}
