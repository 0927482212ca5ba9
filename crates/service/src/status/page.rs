//! The status page: static files that read `/status`.

use axum::http::header;
use axum::response::{IntoResponse, Response};

/// Forbids content of other origins, inline content, and embedding in frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) async fn script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("page.js"))
}

pub(super) async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("page.css"))
}

pub(super) async fn icon() -> Response {
    file("image/svg+xml", include_str!("page.svg"))
}

pub(super) fn html() -> Response {
    file("text/html; charset=utf-8", include_str!("page.html"))
}

fn file(content_type: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, content_type),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // Revalidate: a newer daemon has a newer page.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, text).into_response()
}
