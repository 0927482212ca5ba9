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
    write([(&key, key_pair.serialize_pem(), 0o600), (&cert, certificate.pem(), 0o644)])?;
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
    // Not an authority: a thief of the key can impersonate this builder or client, but nobody else.
    params.is_ca = IsCa::ExplicitNoCa;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    let now = date_time_ymd(1970, 1, 1) + now;
    // Clocks of other machines may be behind.
    params.not_before = now - DAY;
    params.not_after = now + DAY * days;
    Ok(())
}

/// Writes files, given with their texts and modes: all of them, or none if one cannot be written. A file has its mode from the beginning, so
/// that the key is never readable by others.
fn write(files: [(&Path, String, u32); 2]) -> Result<()> {
    let beside = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.with_file_name(format!("{name}.{}.tmp", std::process::id()))
    };
    let written = files.iter().try_for_each(|(path, text, mode)| {
        let write = || {
            if path.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            let mut file = OpenOptions::new().write(true).create_new(true).mode(*mode).open(beside(path))?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    });
    let placed = written.and_then(|()| {
        let place = |path: &Path| fs::rename(beside(path), path);
        files.iter().try_for_each(|(path, ..)| place(path).with_context(|| format!("cannot write {}", path.display())))
    });
    if placed.is_err() {
        files.iter().for_each(|(path, ..)| _ = fs::remove_file(beside(path)));
    }
    placed
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

fn say_what_next(cert: &Path, key: &Path, hosts: &[String]) -> Result<()> {
    let name = hosts.first().map_or("localhost", String::as_str);
    let serve = format!("lantern-index serve --cert {} --key {}", quoted(cert), quoted(key));
    let mut out = io::stdout().lock();
    writeln!(out, "wrote {} and {}\n", cert.display(), key.display())?;
    // A builder that listens on loopback only is unreachable for others, so it needs no tokens.
    let root = cert.display().to_string();
    let mut settings = vec![("host", name), ("sslmode", "verify-full"), ("sslrootcert", root.as_str())];
    if hosts.is_empty() {
        writeln!(out, "1. Start the builder:\n\n  {serve}\n")?;
    } else {
        writeln!(out, "1. Make a token, and put the line that is printed for it into a file TOKENS:\n")?;
        writeln!(out, "  lantern-index token new NAME\n")?;
        writeln!(out, "2. Start the builder:\n\n  {serve} --host 0.0.0.0 --token-file TOKENS\n")?;
        settings.push(("token_file", "A FILE WITH THE TOKEN"));
    }
    let step = if hosts.is_empty() { 2 } else { 3 };
    writeln!(
        out,
        "{step}. Copy the certificate, but never the key, to the machine of PostgreSQL, where its account must be able to read it;\n   \
         give its place there in postgresql.conf, and restart PostgreSQL:\n"
    )?;
    writeln!(out, "  shared_preload_libraries = 'lantern_index'   # before vector, if that is preloaded too")?;
    write!(out, "{}", lines(&settings))?;
    Ok(())
}

fn say_what_next_to_client(cert: &Path, key: &Path) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "wrote {} and {}\n", cert.display(), key.display())?;
    writeln!(out, "1. Have the builder take it; the file may hold those of several databases, one after the other:\n")?;
    writeln!(out, "  lantern-index serve --cert … --key … --client-ca {}\n", quoted(cert))?;
    writeln!(
        out,
        "2. Where PostgreSQL runs, its account must be able to read both files. Give their places in postgresql.conf, beside\n   \
         shared_preload_libraries = 'lantern_index', and restart PostgreSQL, or reload it if the library is preloaded already:\n"
    )?;
    let [cert, key] = [cert, key].map(|path| path.display().to_string());
    write!(out, "{}", lines(&[("sslcert", &cert), ("sslkey", &key)]))?;
    Ok(())
}

/// Lines for `postgresql.conf`. Unlike ALTER SYSTEM, the file accepts the settings before the library is loaded.
fn lines(settings: &[(&str, &str)]) -> String {
    let line =
        |(name, value): &(&str, &str)| format!("  hnsw.external_index_{name} = '{}'\n", value.replace('\'', "''"));
    settings.iter().map(line).collect()
}
