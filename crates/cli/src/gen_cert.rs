use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf, absolute};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd};

use crate::args::GenCert;
use crate::failure::Failure;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Makes a self-signed certificate and its key.
pub fn run(arguments: &GenCert) -> Result<(), Failure> {
    let (cert, key) = arguments.files();
    if arguments.keep && cert.exists() && key.exists() {
        return Ok(());
    }
    if !arguments.force
        && let Some(path) = [&cert, &key].into_iter().find(|path| path.symlink_metadata().is_ok())
    {
        return Err(Failure::usage(anyhow!("{} exists; --force replaces it", path.display())));
    }
    let key_pair = KeyPair::generate().context("cannot make a key")?;
    let mut params =
        if arguments.client { of_client() } else { of_builder(&arguments.host).map_err(Failure::Usage)? };
    valid_for(&mut params, arguments.days)?;
    let certificate = params.self_signed(&key_pair).context("cannot sign the certificate")?;
    write(&key, &key_pair.serialize_pem(), 0o600, arguments.force)?;
    write(&cert, &certificate.pem(), 0o644, arguments.force)?;
    let [cert, key] = [&cert, &key].map(|path| absolute(path).unwrap_or_else(|_| PathBuf::from(path)));
    match arguments.client {
        true => say_what_next_to_client(&cert, &key)?,
        false => say_what_next(&cert, &key, &arguments.host)?,
    }
    Ok(())
}

fn of_client() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "lantern_index");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn of_builder(hosts: &[String]) -> Result<CertificateParams> {
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
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

fn valid_for(params: &mut CertificateParams, days: u32) -> Result<()> {
    // Not an authority: whoever steals the key can pose as this builder or client, but not as anybody else.
    params.is_ca = IsCa::ExplicitNoCa;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    let now = date_time_ymd(1970, 1, 1) + now;
    // Other machines' clocks may be behind.
    params.not_before = now - DAY;
    params.not_after = now + DAY * days;
    Ok(())
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

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

fn say_what_next(cert: &Path, key: &Path, hosts: &[String]) -> Result<()> {
    let host = if hosts.is_empty() { "" } else { " --host 0.0.0.0 --token-file TOKENS" };
    let name = hosts.first().map_or("localhost", String::as_str);
    let mut out = io::stdout().lock();
    writeln!(out, "wrote {} and {}", cert.display(), key.display())?;
    writeln!(out, "\nStart the builder:")?;
    writeln!(out, "  lantern-index serve --cert {} --key {}{host}", quoted(cert), quoted(key))?;
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

fn say_what_next_to_client(cert: &Path, key: &Path) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "wrote {} and {}", cert.display(), key.display())?;
    writeln!(out, "\nHave the builder take it; the file may hold those of several databases, one after the other:")?;
    writeln!(out, "  lantern-index serve --cert … --key … --client-ca {}", quoted(cert))?;
    writeln!(out, "Tell PostgreSQL, whose account must be able to read both files:")?;
    writeln!(
        out,
        "  psql -c \"ALTER SYSTEM SET hnsw.external_index_sslcert = '{}'\" \
         -c \"ALTER SYSTEM SET hnsw.external_index_sslkey = '{}'\" -c 'SELECT pg_reload_conf()'",
        cert.display(),
        key.display()
    )?;
    Ok(())
}
