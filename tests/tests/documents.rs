//! Documents: links have targets, settings and flags are those of the code, README has at most 150 lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use harness::{binary, root};

/// The files below a directory with an extension, without build output and git's files.
fn files(dir: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if !path.is_dir() {
            found.extend(path.extension().is_some_and(|own| own == extension).then_some(path));
        } else if name != "target" && name != ".git" {
            found.extend(files(&path, extension)?);
        }
    }
    Ok(found)
}

/// The lines of a document outside its code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The anchors of a document's headings, as GitHub makes them: the second of two equal headings gets the suffix `-1`.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for line in prose(text).filter(|line| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim();
        let kept = title.chars().filter(|&c| c.is_alphanumeric() || " -_".contains(c)).flat_map(char::to_lowercase);
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let before = seen.entry(anchor.clone()).or_default();
        anchors.insert(if *before == 0 { anchor } else { format!("{anchor}-{before}") });
        *before += 1;
    }
    anchors
}

/// The targets of a line's links and images; text between backticks is code.
fn links(line: &str) -> Vec<String> {
    let text: String = line.split('`').step_by(2).collect();
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

/// The words of a text that begin with `start` and go on with small letters, digits and `also`.
fn words(text: &str, start: &str, also: char) -> BTreeSet<String> {
    let ends = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == also);
    let word = |(at, _): (usize, &str)| {
        let rest = &text[at + start.len()..];
        format!("{start}{}", &rest[..rest.find(ends).unwrap_or(rest.len())])
    };
    text.match_indices(start).map(word).collect()
}

/// The long flags in a text; the dashes of a table's ruler are none.
fn flags(text: &str) -> BTreeSet<String> {
    let mut flags = words(text, "--", '-');
    flags.retain(|flag| flag.trim_start_matches('-').len() + 2 == flag.len() && flag.len() > 2);
    flags
}

/// The flags in a command's help, without `-h, --help`.
fn printed_flags(command: &str) -> Result<BTreeSet<String>> {
    let output = Command::new(binary()?).args([command, "--help"]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().filter(|line| line.starts_with("      --")).flat_map(flags).collect())
}

/// The flags in the first column of the tables of a section.
fn documented_flags(settings: &str, heading: &str) -> BTreeSet<String> {
    let section = settings.lines().skip_while(|line| *line != heading).skip(1);
    let rows = section.take_while(|line| !line.starts_with("## ")).filter_map(|line| line.strip_prefix("| "));
    rows.filter_map(|row| row.split(" | ").next()).flat_map(flags).collect()
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| format!("cannot read {path}"))
}

#[test]
fn links_lead_to_files_and_headings() -> Result<()> {
    let mut broken = Vec::new();
    for file in files(root(), "md")? {
        let dir = file.parent().context("a file lies in a directory")?;
        for link in prose(&fs::read_to_string(&file)?).flat_map(links) {
            if ["http:", "https:", "mailto:"].iter().any(|&scheme| link.starts_with(scheme)) {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link.as_str(), ""));
            let target = if path.is_empty() { file.clone() } else { dir.join(path) };
            let leads =
                target.exists() && (anchor.is_empty() || anchors(&fs::read_to_string(&target)?).contains(anchor));
            if !leads {
                broken.push(format!("{}: {link}", file.display()));
            }
        }
    }
    ensure!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
    Ok(())
}

#[test]
fn settings_of_postgresql_are_documented() -> Result<()> {
    let mut defined = BTreeSet::new();
    for file in files(&root().join("crates/extension/src"), "rs")? {
        let names = words(&fs::read_to_string(&file)?, "c\"hnsw.external_index", '_');
        defined.extend(names.into_iter().map(|name| name[2..].to_owned()));
    }
    ensure!(defined.contains("hnsw.external_index_host"), "no settings found in the library's source: {defined:?}");
    assert_eq!(words(&read("docs/settings.md")?, "hnsw.external_index", '_'), defined);
    Ok(())
}

#[test]
fn flags_are_documented() -> Result<()> {
    let settings = read("docs/settings.md")?;
    let mut all = BTreeSet::new();
    for command in ["serve", "router"] {
        let mut documented = documented_flags(&settings, "## Flags of both daemons");
        documented.extend(documented_flags(&settings, &format!("## Flags of `lantern-index {command}`")));
        let printed = printed_flags(command)?;
        assert_eq!(documented, printed, "documented and printed flags of {command}");
        all.extend(printed);
    }
    let printed = printed_flags("maintain")?;
    assert_eq!(documented_flags(&settings, "## Flags of `lantern-index maintain`"), printed);
    all.extend(printed);
    let mentioned = flags(&settings);
    let unknown: Vec<_> = mentioned.difference(&all).collect();
    ensure!(unknown.is_empty(), "docs/settings.md names flags that no daemon has: {unknown:?}");
    Ok(())
}

#[test]
fn readme_is_short() -> Result<()> {
    let lines = read("README.md")?.lines().count();
    ensure!(lines <= 150, "README.md has {lines} lines, 150 are allowed");
    Ok(())
}
