//! The settings `hnsw.external_index_…`.
//!
//! Only superusers, and roles they grant it to, may set where rows go and which files are read: an ordinary user must not be
//! able to send a table elsewhere.

mod loss;

use std::ffi::{CStr, CString, c_char, c_void};
use std::fs;
use std::time::Duration;

use pgrx::prelude::*;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};

use crate::failure::Failure;

const DEFAULT_HOST: &str = "127.0.0.1";

static HOST: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c"127.0.0.1"));
static PORT: GucSetting<i32> = GucSetting::<i32>::new(protocol::DEFAULT_PORT as i32);
static SECURE: GucSetting<bool> = GucSetting::<bool>::new(true);
static SSLMODE: GucSetting<SslMode> = GucSetting::<SslMode>::new(SslMode::Require);
static SSLROOTCERT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static SSLCERT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static SSLKEY: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static EXTERNAL: GucSetting<bool> = GucSetting::<bool>::new(false);
static FALLBACK: GucSetting<Fallback> = GucSetting::<Fallback>::new(Fallback::Error);
static CONNECT_TIMEOUT: GucSetting<f64> = GucSetting::<f64>::new(10.0);
static TOKEN: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static TOKEN_FILE: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static MAX_RATE: GucSetting<i32> = GucSetting::<i32>::new(0);

/// What to do when no builder is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
pub(crate) enum Fallback {
    /// The statement fails.
    #[name = c"error"]
    Error,
    /// The index is built in the database, with a warning.
    #[name = c"local"]
    Local,
}

/// How much of the builder's certificate is checked, in libpq's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
pub(crate) enum SslMode {
    /// Encrypt; with a root certificate also verify the builder's certificate against it, as libpq does.
    #[name = c"require"]
    Require,
    /// The certificate must come from a root certificate.
    #[name = c"verify-ca"]
    VerifyCa,
    /// Like `verify-ca`, and the certificate must be for the host.
    #[name = c"verify-full"]
    VerifyFull,
}

/// A snapshot of the settings for the connection to the builder.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// `None`: plain TCP.
    pub(crate) tls: Option<TlsSettings>,
    /// `None`: the system's timeout.
    pub(crate) connect_timeout: Option<Duration>,
    /// If it is empty, [`Self::token`] reads the file.
    pub(crate) token: String,
    pub(crate) token_file: Option<String>,
}

#[derive(Clone)]
pub(crate) struct TlsSettings {
    pub(crate) mode: SslMode,
    /// The name that the builder's certificate must be for.
    pub(crate) name: String,
    pub(crate) root_cert: Option<String>,
    pub(crate) cert: Option<String>,
    pub(crate) key: Option<String>,
}

impl Settings {
    pub(crate) fn get() -> Self {
        let host = text(&HOST).unwrap_or_else(|| DEFAULT_HOST.into());
        let settings = Self {
            port: u16::try_from(PORT.get()).unwrap_or(protocol::DEFAULT_PORT),
            tls: SECURE.get().then(|| TlsSettings {
                mode: SSLMODE.get(),
                name: host.clone(),
                root_cert: text(&SSLROOTCERT),
                cert: text(&SSLCERT),
                key: text(&SSLKEY),
            }),
            connect_timeout: Some(CONNECT_TIMEOUT.get()).filter(|&s| s > 0.0).map(Duration::from_secs_f64),
            token: text(&TOKEN).unwrap_or_default(),
            token_file: text(&TOKEN_FILE),
            host,
        };
        loss::warn_before_defaults_are_used(&settings);
        settings
    }

    /// The secret that the builder asks for; empty if none is set. The file is read each time, so that it may be replaced without a reload.
    pub(crate) fn token(&self) -> Result<String, Failure> {
        let Some(path) = self.token_file.as_ref().filter(|_| self.token.is_empty()) else {
            return Ok(self.token.clone());
        };
        let failed = |error| {
            Failure::of_setting(format!("could not read \"{path}\": {error}"), "hnsw.external_index_token_file")
        };
        Ok(fs::read_to_string(path).map_err(failed)?.trim().to_owned())
    }
}

/// Whether all hnsw indexes are built externally, also those without the option.
pub(crate) fn external_by_default() -> bool {
    EXTERNAL.get()
}

/// What to do when no builder is available.
pub(crate) fn fallback() -> Fallback {
    FALLBACK.get()
}

/// The most bytes per second, sent as rows or received as pages; `None` for no limit.
pub(crate) fn max_rate() -> Option<u64> {
    u64::try_from(MAX_RATE.get()).ok().filter(|&rate| rate > 0).map(|rate| rate << 10)
}

/// A text setting; empty is unset.
fn text(setting: &GucSetting<Option<CString>>) -> Option<String> {
    setting.get().map(|text| text.to_string_lossy().into_owned()).filter(|text| !text.is_empty())
}

pub(crate) fn define() {
    loss::detect();
    GucRegistry::define_bool_guc(
        c"hnsw.external_index",
        c"Builds every hnsw index externally, whether or not it was created with \"external\".",
        c"",
        &EXTERNAL,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_enum_guc(
        c"hnsw.external_index_fallback",
        c"What to do when no builder is available: fail, or build the index in the database.",
        c"Once a builder has accepted the build, a failure always ends the statement, and so does a cancelled build at any time.",
        &FALLBACK,
        GucContext::Userset,
        GucFlags::default(),
    );
    text_setting(
        c"hnsw.external_index_host",
        c"Host name or address of the builder for external hnsw indexes.",
        c"",
        &HOST,
    );
    GucRegistry::define_int_guc(
        c"hnsw.external_index_port",
        c"TCP port of the builder for external hnsw indexes.",
        c"",
        &PORT,
        1,
        65535,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"hnsw.external_index_secure",
        c"Whether to use TLS to the builder.",
        c"",
        &SECURE,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_enum_guc(
        c"hnsw.external_index_sslmode",
        c"How much of the builder's certificate is checked.",
        c"With \"require\" and no root certificate the connection is encrypted, but the builder may be anybody.",
        &SSLMODE,
        GucContext::Suset,
        GucFlags::default(),
    );
    text_setting(
        c"hnsw.external_index_sslrootcert",
        c"File with the certificates that the builder's certificate must come from.",
        c"The builder's own self-signed certificate will do.",
        &SSLROOTCERT,
    );
    text_setting(c"hnsw.external_index_sslcert", c"File with the certificate to show to the builder.", c"", &SSLCERT);
    text_setting(c"hnsw.external_index_sslkey", c"File with the private key of that certificate.", c"", &SSLKEY);
    // An integer would be rounded to whole seconds, and half a second to 0, which is no limit.
    GucRegistry::define_float_guc(
        c"hnsw.external_index_connect_timeout",
        c"Longest time to wait for a connection to the builder.",
        c"Zero waits as long as the operating system does.",
        &CONNECT_TIMEOUT,
        0.0,
        f64::from(i32::MAX / 1000),
        GucContext::Userset,
        GucFlags::UNIT_S,
    );
    GucRegistry::define_int_guc(
        c"hnsw.external_index_max_rate",
        c"The limit for bytes of rows, and then of pages, per second of an external build.",
        c"Zero disables the limit.",
        &MAX_RATE,
        0,
        i32::MAX,
        GucContext::Userset,
        GucFlags::UNIT_KB,
    );
    text_setting(
        c"hnsw.external_index_token_file",
        c"File with the secret that the builder for external hnsw indexes asks for.",
        c"It is read at each connection, unless hnsw.external_index_token is set.",
        &TOKEN_FILE,
    );
    // SAFETY: the hooks only read the value and its source, and return static strings.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            c"hnsw.external_index_token",
            c"Secret that the builder for external hnsw indexes asks for.",
            c"",
            &TOKEN,
            GucContext::Suset,
            GucFlags::SUPERUSER_ONLY | GucFlags::NO_SHOW_ALL,
            Some(check_token),
            None,
            Some(show_token),
        );
    }
}

const HIDDEN: &CStr = c"********";

/// Rejects the placeholder that SHOW prints, which `SET … FROM CURRENT` would store, and storing the token itself in a catalog.
unsafe extern "C-unwind" fn check_token(
    value: *mut *mut c_char,
    _extra: *mut *mut c_void,
    source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: PostgreSQL passes a string, or null; the detail is only read.
    unsafe {
        let value = if (*value).is_null() { c"" } else { CStr::from_ptr(*value) };
        pg_sys::GUC_check_errdetail_string = if value == HIDDEN {
            c"This is what is shown in place of the token: SET ... FROM CURRENT cannot copy it."
        } else if source == pg_sys::GucSource::PGC_S_TEST && !value.is_empty() {
            // ALTER DATABASE, ALTER ROLE and CREATE FUNCTION test a value before they store it.
            c"Every role could read the token there. Set hnsw.external_index_token_file instead."
        } else {
            return true;
        }
        .as_ptr()
        .cast_mut();
    }
    false
}

/// SHOW hides the secret, from superusers too.
unsafe extern "C-unwind" fn show_token() -> *const c_char {
    if text(&TOKEN).is_some() { HIDDEN.as_ptr() } else { c"".as_ptr() }
}

fn text_setting(
    name: &'static CStr,
    short: &'static CStr,
    long: &'static CStr,
    setting: &'static GucSetting<Option<CString>>,
) {
    GucRegistry::define_string_guc(name, short, long, setting, GucContext::Suset, GucFlags::default());
}
