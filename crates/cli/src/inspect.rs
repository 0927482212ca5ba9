use anyhow::anyhow;
use pages::{FileSource, PAGE_SIZE, Page, PageSource, verify};

use crate::args::Inspect;
use crate::count;
use crate::failure::Failure;
use crate::print;

/// Verifies an index file and prints the report.
pub fn run(arguments: &Inspect) -> Result<(), Failure> {
    let mut source = FileSource::open(&arguments.file).map_err(Failure::usage)?;
    let name = arguments.file.display();
    if let Some(problem) = foreign(&mut source) {
        return Err(Failure::Usage(anyhow!("{name} is not an hnsw index: {problem}")));
    }
    let report = verify(&mut source, arguments.value_type);
    print(format!("{report}\n"))?;
    if report.is_ok() {
        return Ok(());
    }
    Err(anyhow!("{name} has {}", count::of(report.errors.count(), "error")).into())
}

/// The error of the first page, if no page of the file belongs to an hnsw index. A file with a single such page is a
/// damaged index: the report has the details.
fn foreign(source: &mut FileSource) -> Option<String> {
    let mut buffer = Box::new([0; PAGE_SIZE]);
    let mut first = None;
    for block in 0..source.blocks() {
        let problem = match source.read(block, &mut buffer) {
            Ok(bytes) => Page::parse(block, bytes).err()?.to_string(),
            Err(error) => format!("block {block}: cannot be read: {error}"),
        };
        first.get_or_insert(problem);
    }
    Some(first.unwrap_or_else(|| "the file is empty".to_owned()))
}
