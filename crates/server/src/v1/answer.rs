use protocol::ErrorReport;

use crate::session_error::SessionError;

/// Message, detail and hint of an error as one text, which is all that the client shows.
pub(super) fn of_error(error: &SessionError) -> String {
    error.report().as_ref().map_or_else(|| error.to_string(), of_report)
}

/// Message, detail and hint as one text.
pub(super) fn of_report(report: &ErrorReport) -> String {
    let parts = [&report.message, &report.detail, &report.hint].map(|part| part.trim_end_matches('.'));
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(". ")
}

#[cfg(test)]
mod tests {
    use protocol::{ErrorReport, SqlState};

    use super::of_report;

    #[test]
    fn message_detail_and_hint_become_one_text() {
        let report = ErrorReport::new(SqlState::INTERNAL_ERROR, "no");
        assert_eq!(of_report(&report), "no");
        assert_eq!(of_report(&report.detail("Really.").hint("Try later.")), "no. Really. Try later");
    }
}
