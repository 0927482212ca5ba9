use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf, absolute};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd};

use crate::args::GenCert;
use crate::failure::Failure;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Makes a self-signed certificate and its key.
pub fn run(arguments: &GenCert) -> Result<(), Failure> {
    let (cert, key) = match (&arguments.cert, &arguments.key) {
        (Some(cert), Some(key)) => (cert.clone(), key.clone()),
        _ => (arguments.out_dir.join("cert.pem"), arguments.out_dir.join("key.pem")),
    };
    if arguments.keep && cert.exists() && key.exists() {
        return Ok(());
    }
    if !arguments.force
        && let Some(path) = [&cert, &key].into_iter().find(|path| path.symlink_metadata().is_ok())
    {
        return Err(Failure::usage(anyhow!("{} exists; --force replaces it", path.display())));
    }
    let key_pair = KeyPair::generate().context("cannot make a key")?;
    let params = params(&arguments.host, arguments.days).map_err(Failure::Usage)?;
    let certificate = params.self_signed(&key_pair).context("cannot sign the certificate")?;
    write(&key, &key_pair.serialize_pem(), 0o600, arguments.force)?;
    write(&cert, &certificate.pem(), 0o644, arguments.force)?;
    say_what_next(&cert, &key, &arguments.host)?;
    Ok(())
}

fn params(hosts: &[String], days: u32) -> Result<CertificateParams> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    for host in hosts {
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == '/') {
            return Err(anyhow!("\"{host}\" is not a host name or address"));
        }
        if !names.contains(host) {
            names.push(host.clone());
        }
    }
    let mut params = CertificateParams::new(names).context("a host is not a name or address")?;
    params.distinguished_name.push(DnType::CommonName, hosts.first().map_or("localhost", String::as_str));
    // Not an authority: whoever steals the key can pose as this builder, but not as anybody else.
    params.is_ca = IsCa::ExplicitNoCa;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    let now = date_time_ymd(1970, 1, 1) + now;
    // Other machines' clocks may be behind.
    params.not_before = now - DAY;
    params.not_after = now + DAY * days;
    Ok(params)
}

/// Writes a file that did not exist, so that its mode is right from the start.
fn write(path: &Path, text: &str, mode: u32, force: bool) -> Result<()> {
    let context = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(context)?;
    }
    if force {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).with_context(context),
            _ => {}
        }
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).with_context(context)?;
    file.write_all(text.as_bytes()).with_context(context)?;
    file.sync_all().with_context(context)
}

fn say_what_next(cert: &Path, key: &Path, hosts: &[String]) -> Result<()> {
    let full = |path: &Path| absolute(path).unwrap_or_else(|_| PathBuf::from(path));
    let (cert, key) = (full(cert), full(key));
    let host = if hosts.is_empty() { "" } else { " --host 0.0.0.0 --token-file TOKENS" };
    let name = hosts.first().map_or("localhost", String::as_str);
    let mut out = io::stdout().lock();
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', "'\\''"));
    writeln!(out, "wrote {} and {}", cert.display(), key.display())?;
    writeln!(out, "\nStart the builder:")?;
    writeln!(out, "  lantern-index serve --cert {} --key {}{host}", quoted(&cert), quoted(&key))?;
    if !hosts.is_empty() {
        writeln!(
            out,
            "TOKENS is a file with secrets, one per line, of which PostgreSQL must know one (hnsw.external_index_token)."
        )?;
    }
    writeln!(out, "Tell PostgreSQL, on whose machine a copy of the certificate must be:")?;
    writeln!(
        out,
        "  psql -c \"ALTER SYSTEM SET hnsw.external_index_host = '{name}'\" \
         -c \"ALTER SYSTEM SET hnsw.external_index_sslrootcert = '{}'\" -c 'SELECT pg_reload_conf()'",
        cert.display()
    )?;
    Ok(())
}
