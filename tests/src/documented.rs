//! Which commands and statements do the documents show?

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::root;

/// What a document shows.
#[derive(Debug)]
pub struct Documented<T> {
    /// The document, from the root of the repository.
    pub document: String,
    /// The heading above.
    pub heading: String,
    /// What is shown.
    pub shown: T,
}

/// The documents for users and contributors.
fn documents() -> Result<Vec<PathBuf>> {
    let mut all = ["README.md", "CONTRIBUTING.md", "benches/README.md"].map(PathBuf::from).to_vec();
    for dir in ["docs", "deploy"] {
        for entry in fs::read_dir(root().join(dir)).with_context(|| format!("cannot read {dir}"))? {
            let path = Path::new(dir).join(entry?.file_name());
            all.extend(path.extension().is_some_and(|extension| extension == "md").then_some(path));
        }
    }
    all.sort();
    Ok(all)
}

/// A part of a document: a block of code with the words behind its fence, or a paragraph in one line.
enum Part {
    Code(String, String),
    Paragraph(String),
}

/// The parts of all documents.
fn parts() -> Result<Vec<Documented<Part>>> {
    let mut all = Vec::new();
    for path in documents()? {
        let text = fs::read_to_string(root().join(&path)).with_context(|| format!("cannot read {}", path.display()))?;
        let document = path.display().to_string();
        let (mut heading, mut paragraph) = (String::new(), String::new());
        let mut lines = text.lines();
        loop {
            let line = lines.next();
            let fence = line.and_then(|line| line.trim_start().strip_prefix("```"));
            let title = line.filter(|line| line.starts_with('#'));
            if fence.is_none() && title.is_none() && line.is_some_and(|line| !line.trim().is_empty()) {
                paragraph = format!("{paragraph} {}", line.unwrap_or_default().trim());
                continue;
            }
            let mut add = |shown| {
                all.push(Documented { document: document.clone(), heading: heading.clone(), shown });
            };
            add(Part::Paragraph(std::mem::take(&mut paragraph)));
            if let Some(language) = fence {
                let code: Vec<&str> = lines.by_ref().take_while(|line| !line.trim_start().starts_with("```")).collect();
                add(Part::Code(language.to_owned(), code.join("\n")));
            }
            if let Some(title) = title {
                heading = title.trim_start_matches('#').trim().to_owned();
            }
            if line.is_none() {
                break;
            }
        }
    }
    Ok(all)
}

/// The commands of a program, each as the words behind its name: lines of blocks, and code within the text. In place of a number the documents
/// write `N`.
pub fn documented_commands(program: &str) -> Result<Vec<Documented<Vec<String>>>> {
    let mut all = Vec::new();
    for Documented { document, heading, shown } in parts()? {
        let lines: Vec<String> = match shown {
            Part::Code(_, code) => code.replace("\\\n", " ").lines().map(str::to_owned).collect(),
            Part::Paragraph(text) => text.split('`').skip(1).step_by(2).map(str::to_owned).collect(),
        };
        for line in &lines {
            let line = line.split(" #").next().unwrap_or_default();
            for command in line.split("&&") {
                let command =
                    command.trim().trim_start_matches("sudo ").trim_start_matches("runuser -u lantern-index -- ");
                if let Some(shown) = command.strip_prefix(program).filter(|rest| rest.starts_with(' ')) {
                    let (document, heading) = (document.clone(), heading.clone());
                    all.push(Documented { document, heading, shown: words(shown) });
                }
            }
        }
    }
    Ok(all)
}

/// The statements that the documents show: blocks of SQL, and what is typed at psql's prompt.
pub fn documented_sql() -> Result<Vec<Documented<String>>> {
    let sql = |part: Documented<Part>| {
        let Part::Code(language, code) = part.shown else { return None };
        let shown = match code.split_once("postgres=# ") {
            _ if language == "sql" => code,
            Some((_, typed)) => typed.split_inclusive(';').next()?.to_owned(),
            None => return None,
        };
        Some(Documented { document: part.document, heading: part.heading, shown })
    };
    Ok(parts()?.into_iter().filter_map(sql).collect())
}

/// The words of a command as a shell takes them apart.
fn words(command: &str) -> Vec<String> {
    let (mut all, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in command.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '"' || c == '\'' => (quote, word) = (Some(c), Some(word.unwrap_or_default())),
            None if c.is_whitespace() => all.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    all.extend(word);
    all.into_iter().map(|word| if word == "N" { "1".to_owned() } else { word }).collect()
}

#[cfg(test)]
mod tests {
    use super::{documented_commands, documented_sql, words};

    #[test]
    fn words_are_those_of_a_shell() {
        assert_eq!(words(" advise \"a b\" --x 'c \"d' ''"), ["advise", "a b", "--x", "c \"d", ""]);
        assert_eq!(words("--rows N --name N1"), ["--rows", "1", "--name", "N1"]);
    }

    #[test]
    fn commands_are_found_in_blocks_and_in_the_text() {
        let commands = documented_commands("lantern-index").unwrap();
        let has = |document: &str, words: &[&str]| {
            commands.iter().any(|command| command.document == document && command.shown == words)
        };
        assert!(has("README.md", &["serve", "--memory-limit", "12GB"]), "without the comment: {commands:?}");
        assert!(has("docs/operate.md", &["config", "check"]), "as another user, before &&");
        assert!(has("docs/operate.md", &["drain", "--undo"]), "in the text");
        let continued = |command: &&super::Documented<Vec<String>>| command.shown.iter().any(|word| word == "--plot");
        let advise = commands.iter().find(continued).unwrap();
        assert_eq!(advise.shown[1], "host=db.example user=reader dbname=shop");
        assert_eq!(advise.heading, "Before installing anything");
    }

    #[test]
    fn statements_are_found_in_blocks_and_behind_the_prompt() {
        let all = documented_sql().unwrap();
        let index = all.iter().find(|sql| sql.document == "README.md").unwrap();
        assert!(index.shown.starts_with("CREATE INDEX ON items") && index.shown.ends_with("external = true);"));
        assert!(all.iter().any(|sql| sql.document == "docs/recipes.md" && sql.shown.ends_with("\\gexec")));
    }
}
