//! Which router do the settings describe?

use std::env;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use router::{BuilderTls, Config, FixedBuilder, Mode, ProcessConfig, RouterError, Rules, Source};
use service::TicketKeys;

use crate::daemon;
use crate::failure::Failure;
use crate::router::{ModeName, Router, SourceName};

/// The configuration of the router; reads the files that settings name.
pub fn config(arguments: &Router) -> Result<Config, Failure> {
    let source = source(arguments)?;
    Ok(Config {
        listening: arguments.daemon.listening(arguments.max_connections)?,
        builder_tls: builder_tls(arguments)?.map(Arc::new),
        builder_name: arguments.builder_name.clone().unwrap_or_default(),
        max_build_time: arguments.daemon.max_build_time,
        mode: match arguments.mode {
            ModeName::Relay => Mode::Relay,
            ModeName::Redirect => Mode::Redirect,
        },
        rules: Rules {
            min_builders: arguments.min_builders.into(),
            max_builders: match arguments.builders {
                SourceName::Static => arguments.builder.len(),
                _ => arguments.max_builders.into(),
            },
            spare_builders: arguments.spare_builders.into(),
            idle_ttl: arguments.idle_ttl,
            start_timeout: arguments.start_timeout,
            ..Rules::default()
        },
        grace: arguments.grace,
        ..Config::new(source, server::need_of, server::machine_for)
    })
}

fn source(arguments: &Router) -> Result<Source, Failure> {
    let refuse = |what: &str| Err(Failure::usage(anyhow!("{what}")));
    match arguments.builders {
        SourceName::Process if !arguments.builder.is_empty() => {
            refuse("addresses of builders are for --builders static; this router starts its own")
        }
        SourceName::Process if arguments.ticket_key.is_some() => {
            refuse("a ticket key is for builders that others start; this router makes one for its own")
        }
        SourceName::Process => Ok(Source::Process(ProcessConfig {
            program: env::current_exe().context("cannot find this program")?,
            // Relayed clients never connect to a builder, so it can listen on loopback.
            host: match arguments.mode {
                ModeName::Relay => "127.0.0.1".to_owned(),
                ModeName::Redirect => arguments.daemon.host.clone(),
            },
            cert_and_key: arguments.daemon.cert.clone().zip(arguments.daemon.key.clone()),
            arguments: builder_arguments(arguments),
        })),
        SourceName::Static if arguments.builder.is_empty() => refuse("--builders static needs --builder, once or more"),
        SourceName::Static => {
            Ok(Source::Static(arguments.builder.clone(), arguments.ticket_key.as_deref().map(ticket_keys).transpose()?))
        }
        #[cfg(feature = "kubernetes")]
        SourceName::Kubernetes => arguments.pods.source(arguments.ticket_key.as_deref().map(ticket_keys).transpose()?),
    }
}

fn ticket_keys(file: &Path) -> Result<Arc<TicketKeys>, Failure> {
    Ok(Arc::new(TicketKeys::open(file).map_err(Failure::usage)?))
}

/// Arguments of this router's builders: the router's own limits, unless --builder-arg sets others.
fn builder_arguments(arguments: &Router) -> Vec<String> {
    let milliseconds = |limit: std::time::Duration| format!("{}ms", limit.as_millis());
    let daemon = &arguments.daemon;
    let limits = [
        ("--idle-timeout", Some(milliseconds(daemon.idle_timeout))),
        ("--max-build-time", daemon.max_build_time.map(milliseconds)),
    ];
    let is_given = |flag: &str| arguments.builder_arg.iter().any(|argument| argument.split('=').next() == Some(flag));
    let own = limits.into_iter().filter(|(flag, _)| !is_given(flag));
    own.filter_map(|(flag, value)| Some(format!("{flag}={}", value?))).chain(arguments.builder_arg.clone()).collect()
}

/// Builders that this router starts use its own certificate, others one that an authority has signed.
fn builder_tls(arguments: &Router) -> Result<Option<BuilderTls>, Failure> {
    let tls = match (&arguments.builder_ca, &arguments.builder_name, &arguments.daemon.cert) {
        (Some(ca), Some(name), _) => BuilderTls::authority(ca, name),
        (_, _, Some(cert)) if arguments.builders == SourceName::Process => BuilderTls::pinned(cert),
        _ => return Ok(None),
    };
    tls.map(Some).map_err(Failure::usage)
}

/// Parses `host:port/status-port`.
pub fn parse_builder(text: &str) -> Result<FixedBuilder, String> {
    let wrong = || format!("\"{text}\" is not host:port/status-port, as in builder-1:8998/8999");
    let (address, status_port) = text.rsplit_once('/').ok_or_else(wrong)?;
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let (Ok(port), Ok(status_port)) = (port.parse(), status_port.parse()) else { return Err(wrong()) };
    if host.is_empty() {
        return Err(wrong());
    }
    Ok(FixedBuilder { host: host.to_owned(), port, status_port })
}

/// The failure to start, with advice.
pub fn explain(error: RouterError) -> Failure {
    match error {
        RouterError::Daemon(error) => daemon::explain(error),
        error => Failure::Other(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_builder;

    #[test]
    fn parse_builder_takes_a_host_and_two_ports() {
        let builder = parse_builder("[::1]:8998/8999").unwrap();
        assert_eq!((builder.host.as_str(), builder.port, builder.status_port), ("::1", 8998, 8999));
        for bad in ["host", "host:1", "host/1", ":1/2", "host:1/99999", "host:x/1"] {
            assert!(parse_builder(bad).is_err(), "{bad}");
        }
    }
}
