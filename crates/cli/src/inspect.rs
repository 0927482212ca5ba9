use std::io::{Write, stdout};

use anyhow::{Context, anyhow};
use pages::ValueType;
use pages::{FileSource, Options, verify};

use crate::args::Inspect;
use crate::failure::Failure;

/// Verifies an index file and prints the report.
pub fn run(arguments: &Inspect) -> Result<(), Failure> {
    let mut source = FileSource::open(&arguments.file).map_err(Failure::usage)?;
    let value_type = arguments.value_type.map(ValueType::from);
    let report = verify(&mut source, Options { value_type });
    write!(stdout(), "{report}").context("cannot write to stdout")?;
    if report.is_ok() {
        return Ok(());
    }
    Err(anyhow!("{} has {} errors", arguments.file.display(), report.errors.count()).into())
}
