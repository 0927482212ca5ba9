use protocol::{ErrorReport, Refuse};

use crate::session_error::SessionError;

/// Message and hint of an error as one text, which is all that the client shows.
pub(super) fn of_error(error: &SessionError) -> String {
    error
        .report()
        .map_or_else(|| error.to_string(), |report: ErrorReport| text(&report.message, &report.detail, &report.hint))
}

/// Message and hint of a refusal as one text.
pub(super) fn of_refusal(refuse: &Refuse) -> String {
    text(&refuse.message, &refuse.detail, &refuse.hint)
}

fn text(message: &str, detail: &str, hint: &str) -> String {
    let parts = [message.trim_end_matches('.'), detail.trim_end_matches('.'), hint.trim_end_matches('.')];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(". ")
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn one_text_of_three() {
        assert_eq!(text("no", "", ""), "no");
        assert_eq!(text("no", "Really.", "Try later."), "no. Really. Try later");
    }
}
