use anyhow::{Context, Result};

/// Reads `--flag value` and `--flag=value`. `take` is given each flag, and its value when it asks for one. Whether there was no
/// word for help.
pub fn read(
    mut words: impl Iterator<Item = String>,
    mut take: impl FnMut(&str, &mut dyn FnMut() -> Result<String>) -> Result<()>,
) -> Result<bool> {
    while let Some(word) = words.next() {
        let (flag, attached) = match word.split_once('=') {
            Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
            None => (word, None),
        };
        if matches!(flag.as_str(), "--help" | "-h" | "help") {
            return Ok(false);
        }
        take(&flag, &mut || {
            attached.clone().or_else(|| words.next()).with_context(|| format!("{flag} wants a value"))
        })?;
    }
    Ok(true)
}
