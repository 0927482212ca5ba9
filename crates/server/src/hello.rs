use hnsw::BuildSpec;
use pgvector::{EF_CONSTRUCTION_RANGE, M_RANGE, MAX_EF_SEARCH, MAX_TABLE_DIMS, PAGE_SIZE, min_ef_construction};
use protocol::{Ask, Check, ErrorReport, Hello, MAX_ADVICE_QUERIES, PROTOCOL_VERSION, Refuse, SqlState};
use service::{Size, refuse_memory, refuse_waiting};

use crate::admission::{Never, NoPlace};
use crate::checking::CheckNeed;
use crate::session_error::SessionError;

/// The build that a client requests, if its parameters are within the limits.
pub(crate) fn check(hello: &Hello, max_rows: u64) -> Result<BuildSpec, Box<Refuse>> {
    let versions = hello.protocol_min..=hello.protocol_max;
    if !versions.contains(&PROTOCOL_VERSION) {
        let message = format!("client speaks protocol versions {} to {}", hello.protocol_min, hello.protocol_max);
        return Err(ErrorReport::new(SqlState::FEATURE_NOT_SUPPORTED, message)
            .detail(format!("This builder speaks version {PROTOCOL_VERSION}."))
            .hint("Use a builder and an extension of the same release.")
            .refuse(0));
    }
    let value_type = hello.value_type;
    let name = value_type.name();
    if hello.page_size as usize != PAGE_SIZE {
        let message = format!("page size is {} bytes, must be {PAGE_SIZE}", hello.page_size);
        return Err(ErrorReport::new(SqlState::FEATURE_NOT_SUPPORTED, message).refuse(0));
    }
    if !value_type.supports(hello.metric) {
        let message = format!("{name} cannot be indexed by {}", hello.metric.name());
        return Err(ErrorReport::new(SqlState::FEATURE_NOT_SUPPORTED, message).refuse(0));
    }
    // Advice may recommend an index of another type, which can have more dimensions.
    let most = value_type.max_dims();
    let most = if hello.ask.is_some() { MAX_TABLE_DIMS.max(most) } else { most };
    if !(1..=most).contains(&hello.dims) {
        let message = format!("{name} has {} dimensions, an index can have 1 to {most}", hello.dims);
        return Err(ErrorReport::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).refuse(0));
    }
    let rows = hello.rows_to_index();
    if max_rows > 0 && rows > max_rows {
        let message = format!("table has about {rows} rows, this builder takes at most {max_rows}");
        return Err(ErrorReport::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
            .hint("The builder's limit is --max-rows.")
            .refuse(0));
    }
    check_range("m", hello.m, *M_RANGE.start(), *M_RANGE.end(), "")?;
    let least = min_ef_construction(hello.m);
    let detail = format!("With m = {} it must be at least {least}.", hello.m);
    check_range("ef_construction", hello.ef_construction, least, *EF_CONSTRUCTION_RANGE.end(), &detail)?;
    Ok(BuildSpec {
        // Element numbers have 32 bits, so larger estimates are capped.
        expected_rows: hello.estimated_rows.min(u64::from(u32::MAX)),
        ..BuildSpec::new(value_type, hello.metric, hello.dims, hello.m, hello.ef_construction)
    })
}

/// The refusal of a build that cannot join the queue.
pub(crate) fn refuse_place(hello: &Hello, no_place: NoPlace) -> Box<Refuse> {
    match no_place {
        NoPlace::Never(never) => refuse_never(hello, never),
        NoPlace::BeyondClient(Never { needed, limit }) => refuse_memory("build", needed, limit),
        NoPlace::Waiting(most) => refuse_waiting(most),
    }
}

/// The memory for the check of an index, which must have pages.
pub(crate) fn check_need(spec: &BuildSpec, check: &Check) -> Result<CheckNeed, Box<Refuse>> {
    if check.blocks == 0 {
        let message = "index to check has no pages";
        return Err(ErrorReport::new(SqlState::INVALID_PARAMETER, message).refuse(0));
    }
    Ok(CheckNeed::new(spec, check))
}

/// The refusal of a check, of advice, or of a build of unknown size (`what`) that cannot join the queue.
pub(crate) fn refuse_other(what: &str, no_place: NoPlace) -> Box<Refuse> {
    match no_place {
        NoPlace::Never(Never { needed, limit }) => {
            let message = format!("{what} needs more memory than this builder may use");
            ErrorReport::new(SqlState::OUT_OF_MEMORY, message)
                .detail(format!("About {} are needed, and the limit is {}.", Size(needed), Size(limit)))
                .hint("Use a builder with more memory, or raise its --memory-limit.")
                .refuse(0)
        }
        NoPlace::BeyondClient(Never { needed, limit }) => refuse_memory(what, needed, limit),
        NoPlace::Waiting(most) => refuse_waiting(most),
    }
}

/// Checks the parameters of a request for advice.
pub(crate) fn check_ask(hello: &Hello, ask: &Ask) -> Result<(), Box<Refuse>> {
    check_range("k", ask.k, 1, MAX_EF_SEARCH, "")?;
    let wrong = |message: String| ErrorReport::new(SqlState::INVALID_PARAMETER, message).refuse(0);
    if !(1..1_000_000).contains(&ask.target_ppm) {
        let target = f64::from(ask.target_ppm) / 1e6;
        return Err(wrong(format!("target_recall is {target}, must be above 0 and below 1")));
    }
    if ask.queries > MAX_ADVICE_QUERIES || u64::from(ask.queries) > hello.estimated_rows {
        return Err(wrong(format!(
            "{} queries, must be at most {MAX_ADVICE_QUERIES}, and no more than the rows announced",
            ask.queries
        )));
    }
    Ok(())
}

/// The refusal of a build that would exceed the memory limit even if it ran alone.
fn refuse_never(hello: &Hello, never: Never) -> Box<Refuse> {
    let Hello { value_type, dims, m, estimated_rows, .. } = hello;
    let (name, needed, limit) = (value_type.name(), Size(never.needed), Size(never.limit));
    ErrorReport::new(SqlState::OUT_OF_MEMORY, "build needs more memory than this builder may use")
        .detail(format!(
            "About {needed} are needed for {estimated_rows} rows of {name}({dims}) with m = {m}; the builder's limit is {limit}."
        ))
        .hint("Use a builder with more memory, or raise its --memory-limit, or give it a --spool-dir. A smaller m, or halfvec, needs less.")
        .refuse(0)
}

/// The NOTICE for a build that fits into memory only with its values in the spool file.
pub(crate) fn spool_remark(never: Never) -> String {
    let (needed, limit) = (Size(never.needed), Size(never.limit));
    format!("values are kept in a file, as the build would need {needed} of memory, and the limit is {limit}")
}

/// The refusal of a build that could not be started.
pub(crate) fn refuse_error(error: &SessionError) -> Box<Refuse> {
    let report = error.report().unwrap_or_else(|| ErrorReport::new(SqlState::INTERNAL_ERROR, error.to_string()));
    match report.sqlstate {
        // This daemon is shutting down: the client should retry with another one.
        SqlState::ADMIN_SHUTDOWN => ErrorReport { sqlstate: SqlState::CANNOT_CONNECT_NOW, ..report }.refuse(5_000),
        SqlState::OUT_OF_MEMORY => report.refuse(30_000),
        _ => report.refuse(0),
    }
}

fn check_range(what: &str, value: u16, least: u16, most: u16, detail: &str) -> Result<(), Box<Refuse>> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let message = format!("{what} is {value}, must be between {least} and {most}");
    Err(ErrorReport::new(SqlState::INVALID_PARAMETER, message).detail(detail).refuse(0))
}

#[cfg(test)]
pub(crate) mod tests {
    use protocol::{Ask, Check, Hello, Metric, ValueType};

    use super::check;

    /// A valid request, for tests.
    pub(crate) fn hello() -> Hello {
        Hello { estimated_rows: u64::MAX, ..Hello::new(ValueType::Vector, Metric::L2, 3) }
    }

    #[test]
    fn a_request_within_the_limits_gives_a_spec() {
        let spec = check(&hello(), 0).unwrap();
        assert_eq!((spec.dims, spec.m, spec.ef_construction, spec.expected_rows), (3, 16, 64, u64::from(u32::MAX)));
    }

    #[test]
    fn max_rows_limits_builds_but_not_checks_or_advice() {
        let ask = Ask { table_rows: u64::MAX, k: 10, target_ppm: 950_000, queries: 100 };
        let build = Hello { estimated_rows: 11, ..hello() };
        assert!(check(&build, 11).is_ok());
        assert!(check(&build, 10).unwrap_err().report.message.contains("about 11 rows, this builder takes at most 10"));
        assert!(check(&Hello { ask: Some(ask), ..build.clone() }, 10).is_ok());
        assert!(check(&Hello { check: Some(Check { blocks: 9, sample: 0, ef_search: 40 }), ..build }, 10).is_ok());
    }

    #[test]
    fn refusals_name_the_limit_and_the_value() {
        type Change = fn(&mut Hello);
        let cases: [(Change, &str, &str); 9] = [
            (|h| (h.protocol_min, h.protocol_max) = (3, 9), "0A000", "versions 3 to 9"),
            (|h| h.page_size = 4096, "0A000", "4096 bytes, must be 8192"),
            (|h| h.metric = Metric::Hamming, "0A000", "vector cannot be indexed by hamming"),
            (|h| h.dims = 2001, "54000", "2001 dimensions, an index can have 1 to 2000"),
            (|h| h.dims = 0, "54000", "0 dimensions"),
            (|h| h.m = 1, "22023", "m is 1, must be between 2 and 100"),
            (|h| h.m = 101, "22023", "m is 101"),
            (|h| h.ef_construction = 31, "22023", "ef_construction is 31, must be between 32 and 1000"),
            (|h| h.ef_construction = 1001, "22023", "ef_construction is 1001"),
        ];
        for (change, sqlstate, text) in cases {
            let mut hello = hello();
            change(&mut hello);
            let report = check(&hello, 0).unwrap_err().report;
            assert_eq!(report.sqlstate.as_str(), sqlstate, "{}", report.message);
            assert!(report.message.contains(text), "{}", report.message);
        }
    }
}
