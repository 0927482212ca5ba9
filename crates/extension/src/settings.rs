//! The settings `hnsw.external_index_…`.
//!
//! Where rows go and which files are read is for superusers (and whom they grant it to) alone: an ordinary user must not be
//! able to send a table elsewhere.

use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pgrx::prelude::*;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};

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
static CONNECT_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(10);

/// What to do when no builder can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
pub(crate) enum Fallback {
    /// The statement fails.
    #[name = c"error"]
    Error,
    /// The index is built in the database, with a warning.
    #[name = c"local"]
    Local,
}

/// How much of the builder's certificate is checked, in libpq's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
pub(crate) enum SslMode {
    /// Encrypt; with a root certificate also check that the builder's certificate comes from it, as libpq does.
    #[name = c"require"]
    Require,
    /// The certificate must come from a root certificate.
    #[name = c"verify-ca"]
    VerifyCa,
    /// And must be for the host that was connected to.
    #[name = c"verify-full"]
    VerifyFull,
}

/// The settings at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// `None`: plain TCP.
    pub(crate) tls: Option<TlsSettings>,
    /// `None`: as long as the system takes.
    pub(crate) connect_timeout: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(crate) struct TlsSettings {
    pub(crate) mode: SslMode,
    pub(crate) root_cert: Option<String>,
    pub(crate) cert: Option<String>,
    pub(crate) key: Option<String>,
}

impl Settings {
    /// What is set now.
    pub(crate) fn get() -> Self {
        let settings = Self {
            host: text(&HOST).unwrap_or_else(|| DEFAULT_HOST.into()),
            port: u16::try_from(PORT.get()).unwrap_or(protocol::DEFAULT_PORT),
            tls: SECURE.get().then(|| TlsSettings {
                mode: SSLMODE.get(),
                root_cert: text(&SSLROOTCERT),
                cert: text(&SSLCERT),
                key: text(&SSLKEY),
            }),
            connect_timeout: u64::try_from(CONNECT_TIMEOUT.get()).ok().filter(|&s| s > 0).map(Duration::from_secs),
        };
        warn_before_defaults_are_used(&settings);
        settings
    }
}

/// Whether indexes are built externally that do not ask for it themselves.
pub(crate) fn external_by_default() -> bool {
    EXTERNAL.get()
}

/// What to do when no builder can be had.
pub(crate) fn fallback() -> Fallback {
    FALLBACK.get()
}

/// A text setting; empty is unset.
fn text(setting: &GucSetting<Option<CString>>) -> Option<String> {
    setting.get().map(|text| text.to_string_lossy().into_owned()).filter(|text| !text.is_empty())
}

/// Makes the settings known.
pub(crate) fn define() {
    notice_loss();
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
        c"What to do when no builder can be had: fail, or build the index in the database.",
        c"Once rows were sent, a failure of the builder always ends the statement.",
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
    GucRegistry::define_int_guc(
        c"hnsw.external_index_connect_timeout",
        c"Longest time to wait for a connection to the builder.",
        c"Zero waits as long as the operating system does.",
        &CONNECT_TIMEOUT,
        0,
        i32::MAX / 1000,
        GucContext::Userset,
        GucFlags::UNIT_S,
    );
}

fn text_setting(
    name: &'static CStr,
    short: &'static CStr,
    long: &'static CStr,
    setting: &'static GucSetting<Option<CString>>,
) {
    GucRegistry::define_string_guc(name, short, long, setting, GucContext::Suset, GucFlags::default());
}

/// Whether settings of the configuration file may be lost.
static LOST: AtomicBool = AtomicBool::new(false);

/// pgvector discards settings of its prefix that nobody has defined when it is loaded (from PostgreSQL 15 on). So what
/// postgresql.conf says for ours is lost when pgvector comes first.
fn notice_loss() {
    if cfg!(any(feature = "pg13", feature = "pg14")) {
        return;
    }
    // SAFETY: reads PostgreSQL's state; the name is static.
    let (pgvector_is_loaded, preloading) = unsafe {
        let name = c"hnsw.ef_search".as_ptr();
        let known = !pg_sys::GetConfigOption(name, true, false).is_null();
        let placeholder = pg_sys::GetConfigOptionFlags(name, true) & pg_sys::GUC_CUSTOM_PLACEHOLDER as i32 != 0;
        (known && !placeholder, pg_sys::process_shared_preload_libraries_in_progress)
    };
    LOST.store(pgvector_is_loaded, Ordering::Relaxed);
    if pgvector_is_loaded && preloading {
        warn_of_loss();
    }
}

/// Rows must not go to the default address unencrypted or unverified because the settings that say otherwise got lost.
fn warn_before_defaults_are_used(settings: &Settings) {
    let defaults = settings.host == DEFAULT_HOST && settings.tls.as_ref().is_some_and(|tls| tls.root_cert.is_none());
    if defaults && LOST.swap(false, Ordering::Relaxed) {
        warn_of_loss();
    }
}

fn warn_of_loss() {
    ereport!(
        PgLogLevel::WARNING,
        PgSqlErrorCode::ERRCODE_CONFIG_FILE_ERROR,
        "settings hnsw.external_index_* of the configuration file, if any, are ignored",
        "pgvector was loaded before lantern_index and removed them. \
         Put \"lantern_index\" before \"vector\" in shared_preload_libraries, or leave \"vector\" out."
    );
}
