//! `CREATE INDEX`, from the first check to the last page.

use pages::IndexMeta;
use pgrx::prelude::*;
use protocol::{BuilderMessage, Hello, Layout, capability};

use crate::column::Column;
use crate::engage;
use crate::failure::{Failure, Steps, context, info, information, or_raise, printable};
use crate::hook::{self, owned};
use crate::options::{self, IndexOptions};
use crate::progress::{self, Phase};
use crate::raised;
use crate::rate_limit::{RateLimit, Stopwatch};
use crate::scan::{self, Scanned};
use crate::session::Session;
use crate::settings::{self, Fallback, Settings};
use crate::writer::{self, Expected};

/// `ambuild`: has the builder build external indexes, and pgvector all others.
///
/// Not guarded, and with nothing to drop, so that errors of pgvector and of users' functions pass through unchanged.
pub(crate) unsafe extern "C-unwind" fn ambuild(
    heap: pg_sys::Relation,
    index: pg_sys::Relation,
    info: *mut pg_sys::IndexInfo,
) -> *mut pg_sys::IndexBuildResult {
    // SAFETY: PostgreSQL passes open relations, locked as the statement needs it.
    unsafe {
        let built = context::of_index(index, || build_externally(heap, index, info));
        raised::raise_kept();
        if built.is_null() { (hook::original().build)(heap, index, info) } else { built }
    }
}

/// Null if pgvector is to build the index, or an error was kept.
#[pg_guard]
unsafe extern "C-unwind" fn build_externally(
    heap: pg_sys::Relation,
    index: pg_sys::Relation,
    info: *mut pg_sys::IndexInfo,
) -> *mut pg_sys::IndexBuildResult {
    // SAFETY: as for `ambuild`.
    raised::until_raised(|| unsafe { try_externally(heap, index, info) }).unwrap_or(std::ptr::null_mut())
}

/// Null if pgvector is to build the index.
///
/// # Safety
/// As for `ambuild`.
unsafe fn try_externally(
    heap: pg_sys::Relation,
    index: pg_sys::Relation,
    info: *mut pg_sys::IndexInfo,
) -> *mut pg_sys::IndexBuildResult {
    // SAFETY: as for `ambuild`.
    unsafe {
        let options = options::of(index);
        // TRUNCATE and temporary tables often build empty indexes: they need no builder.
        if !(options.external || settings::external_by_default()) || scan::blocks(heap) == 0 {
            return std::ptr::null_mut();
        }
        let locally = settings::fallback() == Fallback::Local;
        let column = match Column::of(index, options) {
            Err(failure) if locally => {
                // For other failures pgvector raises the same error.
                if failure.is_unsupported() {
                    failure.warn_of_fallback("external builds do not support it");
                }
                return std::ptr::null_mut();
            }
            column => column,
        };
        let engaged = match column.and_then(|column| engage(heap, index, options, column)) {
            Err(failure) if locally && !failure.is_cancellation() => {
                failure.warn_of_fallback("no builder is available");
                return std::ptr::null_mut();
            }
            engaged => engaged,
        };
        let built = engaged.and_then(|engaged| build(heap, index, info, options, engaged));
        let built = or_raise(
            built.map_err(|failure| if (*info).ii_Concurrent { left_behind(failure, index) } else { failure }),
        );
        let result = pg_sys::palloc0(size_of::<pg_sys::IndexBuildResult>()).cast::<pg_sys::IndexBuildResult>();
        (*result).heap_tuples = built.heap_tuples;
        (*result).index_tuples = built.rows as f64;
        result
    }
}

/// Adds a hint for concurrent builds, which leave an invalid index behind when they fail.
///
/// # Safety
/// `index` must be an open index.
unsafe fn left_behind(failure: Failure, index: pg_sys::Relation) -> Failure {
    // SAFETY: as promised by the caller.
    let name = unsafe { name_of(index) };
    let is_printable = printable(&name) == name;
    // REINDEX creates the new indexes of a table before it builds the first, so several may be left.
    let is_new = name.trim_end_matches(|end: char| end.is_ascii_digit()).ends_with("_ccnew");
    let name = quoted(&name);
    let hint = match (is_new, is_printable) {
        (true, _) => {
            let one = if is_printable { format!(", {name} and perhaps others") } else { String::new() };
            format!(
                "Invalid indexes whose names end in _ccnew, or in _ccnew and a number, are left behind{one}: remove them with DROP INDEX."
            )
        }
        (false, true) => format!("An invalid index {name} is left behind: remove it with DROP INDEX."),
        (false, false) => "An invalid index is left behind: remove it with DROP INDEX.".to_owned(),
    };
    failure.also_hint(&hint)
}

/// # Safety
/// The relation must be open.
unsafe fn name_of(relation: pg_sys::Relation) -> String {
    // SAFETY: the name of an open relation.
    unsafe { owned((*(*relation).rd_rel).relname.data.as_ptr()) }.unwrap_or_default()
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

struct Built {
    heap_tuples: f64,
    rows: u64,
}

/// A builder that has accepted the build.
struct Engaged {
    column: Column,
    session: Session,
    estimate: u64,
    /// The build's id at router and builder.
    build_id: String,
}

/// Finds a builder for the index.
///
/// # Safety
/// As for `ambuild`.
unsafe fn engage(
    heap: pg_sys::Relation,
    index: pg_sys::Relation,
    options: IndexOptions,
    column: Column,
) -> Result<Engaged, Failure> {
    // SAFETY: as promised by the caller.
    let estimate = unsafe {
        if scan::blocks(index) != 0 {
            let code = PgSqlErrorCode::ERRCODE_INTERNAL_ERROR;
            return Err(Failure::new(code, "index already contains data"));
        }
        scan::estimate_rows(heap, scan::stored_len(heap, index, &column))
    };
    let settings = Settings::get();
    // SAFETY: the relation is open.
    let label = unsafe { label((*index).rd_id) };
    let hello = hello(label, &column, options, estimate);
    context::build_id(&hello.build_id);
    let build_id = hello.build_id.clone();
    // SAFETY: as promised by the caller.
    let steps = Steps { quiet: unsafe { (*(*heap).rd_rel).relispartition } };
    let session = engage::engage(&settings, hello, steps)?;
    steps.report("successfully connected to external indexing server".into());
    Ok(Engaged { column, session, estimate, build_id })
}

/// # Safety
/// As for `ambuild`.
unsafe fn build(
    heap: pg_sys::Relation,
    index: pg_sys::Relation,
    index_info: *mut pg_sys::IndexInfo,
    options: IndexOptions,
    engaged: Engaged,
) -> Result<Built, Failure> {
    let Engaged { column, mut session, estimate, build_id } = engaged;
    // The builder never learns the digest's key, so that it cannot make other rows with the same digest.
    let key = random().ok_or_else(|| Failure::new(PgSqlErrorCode::ERRCODE_INTERNAL_ERROR, "no random numbers"))?;
    let mut rate_limit = RateLimit::new(settings::max_rate());
    let mut stopwatch = Stopwatch::start();
    progress::enter(Phase::LoadingTuples, estimate);
    // SAFETY: as promised by the caller.
    let Scanned { heap_tuples, digest, workers } =
        unsafe { scan::run(heap, index, index_info, &column, &mut session, &mut rate_limit, key)? };
    session.end_of_tuples()?;
    let scanning = stopwatch.lap();
    let rows = session.rows();

    let layout = wait_for_layout(&mut session)?;
    let building = stopwatch.lap();
    if layout.rows != rows {
        return Err(Failure::invalid(format!("{} rows announced, {rows} were sent.", layout.rows)));
    }
    let meta = IndexMeta {
        value_type: column.value_type,
        dims: column.dims,
        m: options.m,
        ef_construction: options.ef_construction,
    };
    let blocks = layout.blocks;
    progress::enter(Phase::WritingPages, rows);
    // SAFETY: the index is empty, as checked above.
    unsafe { writer::write(index, &mut session, Expected { meta, layout, digest, key }, &mut rate_limit)? };
    progress::tuples(rows, rows);
    let writing = stopwatch.lap();
    // SAFETY: as promised by the caller.
    let of = match unsafe { (*(*heap).rd_rel).relispartition } {
        // SAFETY: as above.
        true => unsafe { format!(" of partition {} in index {}", quoted(&name_of(heap)), quoted(&name_of(index))) },
        false => String::new(),
    };
    let by = match workers {
        0 => String::new(),
        1 => " (1 parallel worker)".into(),
        _ => format!(" ({workers} parallel workers)"),
    };
    let report = information(printable(&format!("indexed {rows} elements{of}")))
        .set_detail(format!("Scan {scanning}{by}, build {building}, pages {writing}. The build's id is {build_id}."));
    // SAFETY: the index is open.
    let hint = unsafe { writer::wal_hint(index, column.value_type, blocks) };
    info(if hint.is_empty() { report } else { report.set_hint(hint) });
    Ok(Built { heap_tuples, rows })
}

/// A relation's name in status and logs: database, schema and name, joined by dots.
///
/// # Safety
/// Must be called in a transaction.
pub(crate) unsafe fn label(relation: pg_sys::Oid) -> String {
    // SAFETY: catalogs are read; the names are copied.
    let names = unsafe {
        [
            owned(pg_sys::get_database_name(pg_sys::MyDatabaseId)),
            owned(pg_sys::get_namespace_name(pg_sys::get_rel_namespace(relation))),
            owned(pg_sys::get_rel_name(relation)),
        ]
    };
    names.map(Option::unwrap_or_default).join(".")
}

/// The Hello message for a build; `label` names it in status and logs.
pub(crate) fn hello(label: String, column: &Column, options: IndexOptions, estimated_rows: u64) -> Hello {
    Hello {
        capabilities: capability::REDIRECT,
        m: options.m,
        ef_construction: options.ef_construction,
        estimated_rows,
        page_size: pg_sys::BLCKSZ,
        client_version: concat!("lantern_index ", env!("CARGO_PKG_VERSION")).into(),
        server_version: format!("PostgreSQL {}", server_version()),
        label,
        // For logs and status of database, router and builder.
        build_id: random().map_or_else(String::new, |[id]| format!("{id:016x}")),
        ..Hello::new(column.value_type, column.metric, column.dims)
    }
}

/// Cryptographically strong random numbers; `None` if PostgreSQL cannot get any.
fn random<const N: usize>() -> Option<[u64; N]> {
    let mut numbers = [0; N];
    // SAFETY: fills the array.
    unsafe { pg_sys::pg_strong_random(numbers.as_mut_ptr().cast(), size_of_val(&numbers)) }.then_some(numbers)
}

fn server_version() -> String {
    // SAFETY: the name is static, the value is copied.
    let version =
        unsafe { owned(pg_sys::GetConfigOption(c"server_version".as_ptr(), true, false)) }.unwrap_or_default();
    // Packagers append their own version.
    version.split(' ').next().unwrap_or_default().into()
}

fn wait_for_layout(session: &mut Session) -> Result<Layout, Failure> {
    let mut phase = Phase::Waiting;
    progress::enter(phase, session.rows());
    loop {
        match session.next()? {
            BuilderMessage::Layout(layout) => return Ok(layout),
            BuilderMessage::Progress(step) => {
                let now = Phase::of_builder(step.phase);
                if now != phase {
                    phase = now;
                    progress::enter(phase, step.total);
                }
                progress::tuples(step.done, step.total);
            }
            other => return Err(Failure::protocol(format!("{} while the graph was built.", other.name()))),
        }
    }
}
