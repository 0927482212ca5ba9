//! Documents: links have targets, settings, flags and messages are those of the code, commands are taken, SQL runs, README has at most 150
//! lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::{
    Builder, BuilderOptions, Cluster, Documented, PgConfig, binary, documented_commands, documented_sql, root, wait_for,
};

/// The files below a directory with an extension, except build output and `.git`.
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

/// The targets of a line's links and images; text between backticks is skipped.
fn links(line: &str) -> Vec<String> {
    let text: String = line.split('`').step_by(2).collect();
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

/// The words of a text that begin with `start` and continue with lower-case letters, digits and `also`.
fn words(text: &str, start: &str, also: char) -> BTreeSet<String> {
    let ends = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == also);
    let word = |(at, _): (usize, &str)| {
        let rest = &text[at + start.len()..];
        format!("{start}{}", &rest[..rest.find(ends).unwrap_or(rest.len())])
    };
    text.match_indices(start).map(word).collect()
}

/// The long flags in a text, without the dashes that separate a table's head.
fn flags(text: &str) -> BTreeSet<String> {
    let mut flags = words(text, "--", '-');
    flags.retain(|flag| flag.trim_start_matches('-').len() + 2 == flag.len() && flag.len() > 2);
    flags
}

/// The flags in a command's help, without `-h, --help`, with their defaults; "" if there is none.
fn printed_flags(command: &str) -> Result<BTreeMap<String, String>> {
    let output = Command::new(binary()?).args([command, "--help"]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let parts = text.split("\n      --").skip(1).map(|part| {
        let flag = part.split([' ', '[', '\n']).next().unwrap_or_default();
        // A default that is described, in words, is not in a line of its own.
        let default = part.lines().find_map(|line| line.trim_start().strip_prefix("[default: ")?.strip_suffix(']'));
        (format!("--{flag}"), default.unwrap_or_default().trim_matches('"').to_owned())
    });
    Ok(parts.collect())
}

/// A command's flags in the first column of the tables of a section, with their defaults from the second; "" if it has only words.
fn documented_flags(settings: &str, heading: &str, command: &str) -> BTreeMap<String, String> {
    let section = settings.lines().skip_while(|line| *line != heading).skip(1);
    let mut found = BTreeMap::new();
    for row in section.take_while(|line| !line.starts_with("## ")).filter_map(|line| line.strip_prefix("| ")) {
        let mut cells = row.split(" | ");
        let (names, defaults) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        let (default, of_router) = defaults.split_once("; router ").unwrap_or((defaults, defaults));
        let mut defaults = if command == "router" { of_router } else { default }.split(", ").cycle();
        for flag in names.split(", ").filter_map(|name| flags(name).pop_first()) {
            let default = defaults.next().and_then(|value| value.strip_prefix('`')?.strip_suffix('`'));
            found.insert(flag, default.unwrap_or_default().to_owned());
        }
    }
    found
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
        let mut documented = documented_flags(&settings, "## Flags of both daemons", command);
        documented.extend(documented_flags(&settings, &format!("## Flags of `lantern-index {command}`"), command));
        let printed = printed_flags(command)?;
        assert_eq!(documented, printed, "documented and printed flags of {command}, with their defaults");
        all.extend(printed.into_keys());
    }
    let printed = printed_flags("maintain")?;
    assert_eq!(documented_flags(&settings, "## Flags of `lantern-index maintain`", "maintain"), printed);
    all.extend(printed.into_keys());
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

/// Where messages for users are, and what comes before their text there.
const MESSAGES: [(&str, &[&str]); 14] = [
    (
        "crates/extension/src",
        &["Failure::new(", "wrong(", "unsupported(", "of_setting(", "let message = ", "message = "],
    ),
    ("crates/server/src/hello.rs", &["refuse(", "wrong(", "let message = "]),
    ("crates/server/src/session_error.rs", &["#[error("]),
    ("crates/hnsw/src/error.rs", &["#[error("]),
    ("crates/advise/src/error.rs", &["#[error("]),
    ("crates/router/src/admission.rs", &["#[error(", "let message = ", "\n            ("]),
    ("crates/router/src/relay.rs", &["message: "]),
    ("crates/router/src/relayed.rs", &["message: "]),
    ("crates/router/src/session.rs", &["message: "]),
    ("crates/service/src/access.rs", &["=> ("]),
    ("crates/service/src/turns.rs", &["let message = "]),
    ("crates/service/src/activity.rs", &["#[error(", "message: "]),
    ("crates/service/src/client.rs", &["message: "]),
    ("crates/service/src/ticket.rs", &["#[error("]),
];

/// Messages that docs/errors.md leaves out.
const UNDOCUMENTED: [(&str, &str); 14] = [
    ("client left", "nobody is there to read it"),
    ("connection failed", "nobody is there to read it"),
    ("client closed the connection", "nobody is there to read it"),
    ("client read nothing for … s", "nobody is there to read it"),
    ("client sent more after the end of its rows", "of Lantern's protocol"),
    ("index to check has no pages", "the library does not ask for it"),
    ("the statement has ended", "ends a thread, which has nobody to tell"),
    ("the connection to the builder has ended", "the thread's own failure is raised instead"),
    ("cannot read ticket key", "told when a daemon starts, on stderr"),
    ("ticket key … holds none, or one that is shorter than … bytes", "told when a daemon starts, on stderr"),
    ("NUL in a query", "PostgreSQL has no such text"),
    ("build cancelled", "the session says who cancelled it"),
    ("hnsw.external_index_sslmode", "the name of a setting, behind a message of the TLS library"),
    ("hnsw.external_index_secure", "the name of a setting, behind a message of the TLS library"),
];

/// The first string literal of what begins here and ends with the parenthesis that was open, or with the statement.
fn first_literal(source: &str) -> Option<String> {
    let mut depth = 0;
    let mut chars = source.chars();
    for c in chars.by_ref() {
        match c {
            '"' => break,
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ';' if depth == 0 => return None,
            _ => {}
        }
        if depth < 0 {
            return None;
        }
    }
    let mut literal = String::new();
    while let Some(c) = chars.next() {
        match c {
            '"' => return Some(literal),
            '\\' => literal.push(chars.next()?),
            c => literal.push(c),
        }
    }
    None
}

/// A message as documents write it: `…` for what differs, builders for daemons.
fn as_documented(literal: &str) -> String {
    let mut text = String::new();
    let mut rest = literal;
    while let Some((before, (name, after))) = rest.split_once('{').and_then(|(a, b)| Some((a, b.split_once('}')?))) {
        text += before;
        text += if name == "daemon" { "builder" } else { "…" };
        rest = after;
    }
    (text + rest).trim_matches(|c| "… :".contains(c)).to_owned()
}

/// The messages in a file, without those of its tests.
fn messages(source: &str, markers: &[&str]) -> BTreeSet<String> {
    let source = source.split("\n#[cfg(test)]").next().unwrap_or_default();
    let after = |marker: &&str| source.match_indices(*marker).map(|(at, found)| at + found.len()).collect::<Vec<_>>();
    let all = markers.iter().flat_map(after).filter_map(|at| first_literal(&source[at..]));
    // The parts of a message that are always the same must be more than a word.
    all.map(|literal| as_documented(&literal)).filter(|text| text.matches(char::is_alphabetic).count() > 4).collect()
}

#[test]
fn messages_are_documented() -> Result<()> {
    let errors = read("docs/errors.md")?.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut undocumented = Vec::new();
    let mut seen = BTreeSet::new();
    for (path, markers) in MESSAGES {
        let path = root().join(path);
        let all = if path.is_dir() { files(&path, "rs")? } else { vec![path] };
        for file in &all {
            seen.extend(messages(&fs::read_to_string(file)?, markers).into_iter().map(|text| (text, file.clone())));
        }
    }
    let texts: BTreeSet<&str> = seen.iter().map(|(text, _)| text.as_str()).collect();
    // If these are found, so are all that are written like them.
    for known in ["queries return no values", "router is shutting down", "build took longer than … s", "out of memory"]
    {
        ensure!(texts.contains(known), "no message {known:?} in the sources: {texts:#?}");
    }
    for (text, reason) in UNDOCUMENTED {
        ensure!(texts.contains(text), "no source has the message {text:?} ({reason})");
    }
    for (text, file) in &seen {
        if !errors.contains(text) && UNDOCUMENTED.iter().all(|(known, _)| known != text) {
            undocumented.push(format!("{}: {text}", file.display()));
        }
    }
    ensure!(undocumented.is_empty(), "messages that docs/errors.md lacks:\n{}", undocumented.join("\n"));
    Ok(())
}

/// The others are `cargo xtask`, which crates/xtask and benches check by their own definitions.
#[test]
fn commands_are_taken_as_documented() -> Result<()> {
    let commands = documented_commands("lantern-index")?;
    ensure!(commands.len() > 20, "few commands are found: {commands:?}");
    let binary = binary()?;
    for Documented { document, heading, shown } in commands {
        // Flags and values are read, then help is printed in place of doing anything.
        let output =
            Command::new(&binary).args(&shown).arg("--help").env("LANTERN_INDEX_CONFIG", "/dev/null").output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{document}, {heading}: lantern-index {}\n{errors}", shown.join(" "));
    }
    Ok(())
}

/// What `ROWS(count, dims)` stands for.
const ROWS: &str = "SELECT i, (SELECT array_agg(sin(i * j * 0.37)) FROM generate_series(1, DIMS) j)::vector(DIMS) \
                    FROM generate_series(1, COUNT) i";

/// The content of the database before the statements of a document, by the heading above them.
const BEFORE: [(&str, &str, &str); 11] = [
    ("README.md", "Use it on your own table", "CREATE TABLE items (id, embedding) AS ROWS(300, 3); ANALYZE items"),
    (
        "docs/operate.md",
        "Life of an index",
        "CREATE EXTENSION lantern_index; CREATE TABLE items (id, v) AS ROWS(300, 3);
         CREATE INDEX fine ON items USING hnsw (v vector_l2_ops)",
    ),
    ("docs/operate.md", "Builds that run", "SELECT 1"),
    ("docs/recipes.md", "CONCURRENTLY", "SELECT 1"),
    (
        "docs/recipes.md",
        "Partitions",
        "CREATE TABLE items (id int, v vector(3)) PARTITION BY RANGE (id);
         CREATE TABLE items_0 PARTITION OF items FOR VALUES FROM (0) TO (150);
         CREATE TABLE items_1 PARTITION OF items FOR VALUES FROM (150) TO (301);
         INSERT INTO items ROWS(300, 3)",
    ),
    (
        "docs/recipes.md",
        "REINDEX",
        "CREATE TABLE items (id, v) AS ROWS(300, 3); CREATE INDEX items_v ON items USING hnsw (v vector_l2_ops)",
    ),
    (
        "docs/recipes.md",
        "Taking it off",
        "CREATE TABLE items (id, v) AS ROWS(300, 3);
         CREATE INDEX items_v ON items USING hnsw (v vector_l2_ops) WITH (external = true)",
    ),
    ("docs/tune.md", "Tuning", "CREATE TABLE items (id, embedding) AS ROWS(300, 3); ANALYZE items"),
    (
        "docs/tune.md",
        "Which index",
        "CREATE EXTENSION lantern_index; CREATE TABLE items (id, embedding) AS ROWS(1200, 16); ANALYZE items;
         ALTER TABLE items ALTER embedding TYPE vector(16);
         CREATE TABLE searches AS SELECT embedding FROM items LIMIT 50",
    ),
    (
        "docs/tune.md",
        "ef_search",
        "CREATE TABLE items (id, embedding) AS ROWS(300, 3); CREATE INDEX ON items USING hnsw (embedding vector_cosine_ops);
         CREATE TABLE searches (id, embedding) AS ROWS(20, 3)",
    ),
    ("docs/tune.md", "Types", "CREATE TABLE items (id, embedding) AS ROWS(300, 384); ANALYZE items"),
];

/// Runs statements in psql, which ends at the first error.
fn psql(cluster: &Cluster, database: &str, statements: &str) -> Result<String> {
    let mut psql = Command::new(cluster.config().program("psql"));
    psql.args(["-X", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", database, "-h"]).arg(cluster.dir());
    let mut psql = psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    psql.stdin.take().context("piped")?.write_all(statements.as_bytes())?;
    let output = psql.wait_with_output()?;
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    ensure!(output.status.success(), "{statements}\n{text}");
    Ok(text)
}

#[test]
fn sql_runs_as_documented() -> Result<()> {
    let builder = Builder::start_with(&BuilderOptions { tls: false, ..BuilderOptions::default() })?;
    let cluster = Cluster::start_with(PgConfig::require()?, &builder.settings())?;
    let mut ran = BTreeSet::new();
    for (at, Documented { document, heading, shown }) in documented_sql()?.into_iter().enumerate() {
        let before = BEFORE.iter().find(|(of, below, _)| *of == document && *below == heading);
        let (of, below, before) =
            before.with_context(|| format!("{document}, {heading}: what do these statements need?\n{shown}"))?;
        let rows = |part: &str| {
            let (numbers, rest) = part.split_once(')')?;
            let (count, dims) = numbers.split_once(", ")?;
            Some(ROWS.replace("COUNT", count).replace("DIMS", dims) + rest)
        };
        let mut parts = before.split("ROWS(");
        let first = parts.next().unwrap_or_default().to_owned();
        let before = parts.try_fold(first, |all, part| Some(all + &rows(part)?)).context("ROWS(count, dims)")?;
        let database = format!("documented_{at}");
        cluster.database(&database)?;
        psql(&cluster, &database, &before)?;
        // Once: psql repeats it until it is interrupted.
        let shown = shown.replace("\\watch 1", ";");
        let printed = psql(&cluster, &database, &shown).with_context(|| format!("{document}, {heading}"))?;
        println!("{document}, {heading}\n{printed}");
        ran.insert((*of, *below));
    }
    let gone: Vec<_> = BEFORE.iter().filter(|(of, below, _)| !ran.contains(&(*of, *below))).collect();
    ensure!(gone.is_empty(), "there are no such statements: {gone:?}");
    // They ran on the builder, not in the database.
    wait_for("the end of eight builds", Duration::from_secs(60), || {
        Ok((builder.metric("lantern_index_builds_total")? >= 8.0).then_some(()))
    })
}
