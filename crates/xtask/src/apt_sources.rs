//! Where this machine gets Debian packages from.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::other_apt::Kind;

/// An archive, as apt's sources name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive {
    /// The base address.
    pub uri: String,
    /// Keys that sign it, if the source says so; may be a key itself, of several lines.
    pub signed_by: Option<String>,
}

impl Archive {
    /// The same archive as a source of packages of another release, in deb822 style.
    pub fn stanza(&self, suite: &str, kind: Kind) -> String {
        let types = match kind {
            Kind::Binaries | Kind::BinariesFor(_) => "deb",
            Kind::Sources => "deb-src",
        };
        let signed_by = self.signed_by.as_ref().map_or(String::new(), |keys| format!("Signed-By: {keys}\n"));
        format!("Types: {types}\nURIs: {}\nSuites: {suite}\nComponents: main\n{signed_by}", self.uri)
    }

    /// Higher for Debian's own archive than for others that happen to have a component `main` for the same release.
    fn rank(&self) -> u32 {
        let path_fits = self.uri.trim_end_matches('/').ends_with("/debian");
        let keys_fit = self.signed_by.as_ref().is_some_and(|keys| keys.contains("debian-archive"));
        u32::from(path_fits) + u32::from(keys_fit)
    }
}

/// The archives this machine gets the release `codename` from, most likely Debian's first.
pub fn archives(apt: &Path, codename: &str) -> Vec<Archive> {
    let mut files = vec![apt.join("sources.list")];
    let parts = fs::read_dir(apt.join("sources.list.d")).into_iter().flatten().flatten();
    files.extend(parts.map(|entry| entry.path()));
    let mut found = Vec::new();
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => found.extend(text.lines().filter_map(|line| one_line(line, codename))),
            Some("sources") => found.extend(stanzas(&text).iter().filter_map(|stanza| deb822(stanza, codename))),
            _ => {}
        }
    }
    found.sort_by_key(|archive| std::cmp::Reverse(archive.rank()));
    found.dedup();
    found
}

/// `deb [signed-by=KEYS …] URI SUITE COMPONENT…`
fn one_line(line: &str, codename: &str) -> Option<Archive> {
    let rest = line.split('#').next()?.trim().strip_prefix("deb")?;
    let rest = rest.strip_prefix("-src").unwrap_or(rest);
    let rest = rest.strip_prefix(char::is_whitespace)?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace();
    let (uri, suite) = (words.next()?, words.next()?);
    let signed_by = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="));
    let fits = is_release(suite, codename) && words.any(|component| component == "main") && !uri.starts_with("cdrom:");
    fits.then(|| Archive { uri: uri.to_owned(), signed_by: signed_by.map(str::to_owned) })
}

fn deb822(stanza: &HashMap<String, String>, codename: &str) -> Option<Archive> {
    let words = |field: &str| stanza.get(field).map(|value| value.split_whitespace()).into_iter().flatten();
    let enabled = stanza.get("enabled").is_none_or(|value| value != "no" && value != "false");
    let fits = enabled
        && words("suites").any(|suite| is_release(suite, codename))
        && words("components").any(|component| component == "main");
    let uri = words("uris").next()?;
    fits.then(|| Archive { uri: uri.to_owned(), signed_by: stanza.get("signed-by").cloned() })
}

fn is_release(suite: &str, codename: &str) -> bool {
    [codename, "stable", "oldstable", "testing"].contains(&suite)
}

/// Fields by lower-case name; values may have several lines.
fn stanzas(text: &str) -> Vec<HashMap<String, String>> {
    let mut all = vec![HashMap::new()];
    let mut current = String::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some(stanza) = all.last_mut() else { break };
        if line.trim().is_empty() {
            all.push(HashMap::new());
        } else if line.starts_with([' ', '\t']) {
            let value: &mut String = stanza.entry(current.clone()).or_default();
            value.push('\n');
            value.push_str(line);
        } else if let Some((name, value)) = line.split_once(':') {
            current = name.trim().to_ascii_lowercase();
            stanza.insert(current.clone(), value.trim().to_owned());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_sources() {
        let keys = "/usr/share/keyrings/debian-archive-keyring.gpg";
        let line =
            format!("deb [arch=amd64 signed-by={keys}] http://mirror.example/debian bookworm main contrib # here");
        let archive = one_line(&line, "bookworm").unwrap();
        assert_eq!(
            archive,
            Archive { uri: "http://mirror.example/debian".to_owned(), signed_by: Some(keys.to_owned()) }
        );
        for other in [
            "# deb http://mirror.example/debian bookworm main",
            "deb http://mirror.example/debian bookworm-updates main",
            "deb http://mirror.example/debian bookworm contrib",
            "deb cdrom:[Debian]/ bookworm main",
            "debian http://mirror.example/debian bookworm main",
        ] {
            assert_eq!(one_line(other, "bookworm"), None, "{other}");
        }
    }

    #[test]
    fn deb822_sources() {
        let text = "Types: deb\n# a mirror\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\n\
                    Components: main\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n\n\
                    Types: deb\nURIs: http://mirror.example/debian-security\n\
                    Suites: bookworm-security\nComponents: main\n";
        let found: Vec<Archive> = stanzas(text).iter().filter_map(|stanza| deb822(stanza, "bookworm")).collect();
        assert_eq!(found.len(), 1);
        let stanza = found[0].stanza("trixie", Kind::Sources);
        assert!(stanza.starts_with("Types: deb-src\nURIs: http://mirror.example/debian\nSuites: trixie\n"), "{stanza}");
        assert!(stanza.ends_with("Signed-By: \n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n"), "{stanza}");
    }

    #[test]
    fn debian_goes_first() {
        let other = Archive { uri: "http://other.example/apt".to_owned(), signed_by: None };
        let debian = Archive { uri: "http://mirror.example/debian/".to_owned(), signed_by: None };
        assert!(debian.rank() > other.rank());
    }
}
