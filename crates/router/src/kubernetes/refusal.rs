use std::error::Error as _;

use kube::Error;

use crate::spawner::{Outlook, SpawnError};

/// Whether the name is taken, or the object has changed since it was read.
pub(super) fn is_taken(error: &Error) -> bool {
    code(error) == 409
}

/// Whether there is no such object.
pub(super) fn is_absent(error: &Error) -> bool {
    code(error) == 404
}

/// Whether the router lacks the permission.
pub(super) fn is_forbidden(error: &Error) -> bool {
    matches!(code(error), 401 | 403)
}

/// Whether a ResourceQuota of the namespace leaves no room.
pub(super) fn is_over_quota(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 403 && status.message.contains("exceeded quota"))
}

/// Whether the same request would fail again: the API server has answered, and neither it nor a webhook is broken or overloaded.
pub(super) fn is_final(error: &Error) -> bool {
    matches!(code(error), 400..=499) && code(error) != 429
}

fn code(error: &Error) -> u16 {
    match error {
        Error::Api(status) => status.code,
        _ => 0,
    }
}

/// Describes an error of a request to Kubernetes.
pub(super) fn spawn_error(what: &str, error: &Error) -> SpawnError {
    let Error::Api(status) = error else {
        // The API server cannot be reached: the last error in the chain has the reason.
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(next) = cause {
            text = next.to_string();
            cause = next.source();
        }
        return SpawnError {
            hint: "The API server of Kubernetes cannot be reached.".to_owned(),
            ..SpawnError::passing(format!("cannot {what}: {text}"))
        };
    };
    let text = format!("cannot {what}: Kubernetes says: {}", status.message);
    let quota = is_over_quota(error);
    let hint = match status.code {
        401 => "The router's service account is not known to Kubernetes, or its token has expired.",
        403 if quota => "The quota of the namespace leaves no room for another builder.",
        403 if status.message.contains("cannot create resource") => "Look at the role of the router's service account.",
        403 => "Look at the limits and policies of the namespace, and at the role of the router's service account.",
        400 | 404 | 422 => "Look at the template for builders and at the namespace.",
        _ => "",
    };
    let outlook = match status.code {
        _ if quota => Outlook::Quota,
        400 | 401 | 403 | 404 | 422 => Outlook::Lasting,
        _ => Outlook::Passing,
    };
    SpawnError { text, hint: hint.to_owned(), outlook }
}

/// Like [`spawn_error`], but temporary: a server that has just started may soon allow what it still forbids.
pub(super) fn spawn_error_of_new(what: &str, error: &Error) -> SpawnError {
    let said = spawn_error(what, error);
    if !is_forbidden(error) || is_over_quota(error) {
        return said;
    }
    let hint = "The API server of Kubernetes has just started, and may not know yet what the router may do.";
    SpawnError { hint: hint.to_owned(), outlook: Outlook::Passing, ..said }
}

#[cfg(test)]
mod tests {
    use kube::Error;
    use kube::core::Status;

    use super::{is_final, spawn_error, spawn_error_of_new};
    use crate::spawner::Outlook;

    #[test]
    fn an_overloaded_server_is_asked_again() {
        let is_final = |code| is_final(&Error::Api(Box::new(Status::failure("no", "no").with_code(code))));
        assert_eq!([422, 429, 503].map(is_final), [true, false, false]);
    }

    #[test]
    fn a_new_server_may_yet_allow_what_it_forbids() {
        let error = |reason: &str, code| Error::Api(Box::new(Status::failure(reason, reason).with_code(code)));
        let forbidden = error("pods is forbidden", 403);
        assert_eq!(spawn_error("create pod", &forbidden).outlook, Outlook::Lasting);
        assert_eq!(spawn_error_of_new("create pod", &forbidden).outlook, Outlook::Passing);
        let invalid = error("pod is invalid", 422);
        assert_eq!(spawn_error_of_new("create pod", &invalid).outlook, Outlook::Lasting);
        let quota = error("pods is forbidden: exceeded quota: builders", 403);
        let outlooks = [spawn_error, spawn_error_of_new].map(|error| error("create pod", &quota).outlook);
        assert_eq!(outlooks, [Outlook::Quota; 2]);
    }
}
