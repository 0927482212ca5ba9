//! What does the configuration file say? It is TOML, with a table for each daemon, whose keys are the names of flags.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File as Opened;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::{Arg, Command};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::definition::{SECTIONS, Section, is_list, is_switch, key, near};
use super::mistake::{Mistake, Place, fault};

/// The most bytes of a configuration file: a wrong file, such as a log, must not take much memory.
const MAX_BYTES: u64 = 1 << 20;

/// A setting in the file.
#[derive(Debug)]
pub struct Entry {
    /// One value, or several for a list.
    pub values: Vec<String>,
    /// The line in the file, counted from 1.
    pub line: usize,
}

/// The content of a configuration file, with its mistakes.
#[derive(Debug, Default)]
pub struct File {
    /// Path of the file; `None` if there is none.
    pub path: Option<PathBuf>,
    /// Valid settings, by section and key.
    pub entries: BTreeMap<(&'static str, String), Entry>,
    /// Mistakes of invalid settings.
    pub mistakes: Vec<Mistake>,
}

impl File {
    /// Reads a file. If `named`, that is if the user named it, a missing file is a mistake.
    pub fn read(path: &Path, named: bool, command: &Command) -> Self {
        let whole = |text: String| Self {
            path: Some(path.to_owned()),
            mistakes: vec![Mistake { place: Place::File(path.to_owned(), None), text }],
            ..Self::default()
        };
        let mut text = String::new();
        match Opened::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !named => return Self::default(),
            Err(error) => return whole(format!("cannot be read: {error}")),
            Ok(length) if length as u64 > MAX_BYTES => return whole("is longer than 1 MiB".to_owned()),
            Ok(_) => {}
        }
        Self::parse(path, &text, command)
    }

    /// Parses the text of a file.
    pub fn parse(path: &Path, text: &str, command: &Command) -> Self {
        let mut reader = Reader { path, text, file: Self { path: Some(path.to_owned()), ..Self::default() } };
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            reader.mistake(error.span().map_or(0, |span| span.start), error.message().trim().replace('\n', ": "));
        }
        // After a syntax error, further findings would be spurious.
        if reader.file.mistakes.is_empty() {
            for (name, value) in table.get_ref() {
                reader.section(name, value, command);
            }
        }
        reader.file.mistakes.sort_by_key(|mistake| match mistake.place {
            Place::File(_, line) => line,
            _ => None,
        });
        reader.file
    }
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    file: File,
}

type Name<'i> = Spanned<std::borrow::Cow<'i, str>>;

impl Reader<'_> {
    fn section(&mut self, name: &Name<'_>, value: &Spanned<DeValue<'_>>, command: &Command) {
        let known = SECTIONS.map(|section| format!("[{}]", section.name)).join(", ");
        let at = name.span().start;
        let Some(section) = Section::find(name.get_ref()) else {
            return self.mistake(at, format!("\"{}\" is none of the sections: {known}", name.get_ref()));
        };
        let Some(table) = value.get_ref().as_table() else {
            return self
                .mistake(at, format!("{} is a section: write [{}] on a line of its own", section.name, section.name));
        };
        for (name, value) in table {
            match section.settings(command).find(|setting| key(setting) == name.get_ref().as_ref()) {
                Some(setting) => self.setting(section, setting, name.span().start, value.get_ref()),
                None => self.unknown(section, name, command),
            }
        }
    }

    fn setting(&mut self, section: &Section, setting: &Arg, at: usize, value: &DeValue<'_>) {
        let values = match value {
            DeValue::Array(array) if is_list(setting) => array.iter().map(|value| scalar(value.get_ref())).collect(),
            value => scalar(value).map(|value| vec![value]),
        };
        let Some(values) = values else {
            let wanted = if is_list(setting) { "texts or numbers" } else { "a text or a number" };
            return self.mistake(at, format!("{} must be {wanted}, not {}", key(setting), value.type_str()));
        };
        let is_bool = matches!(value, DeValue::Boolean(_));
        if is_switch(setting) != is_bool {
            let wanted = if is_switch(setting) { "true or false, without quotes" } else { "a text or a number" };
            return self.mistake(at, format!("{} must be {wanted}", key(setting)));
        }
        let faults: Vec<String> = values.iter().filter_map(|value| fault(setting, OsString::from(value))).collect();
        if faults.is_empty() {
            let line = self.line(at);
            self.file.entries.insert((section.name, key(setting).to_owned()), Entry { values, line });
        }
        for text in faults {
            self.mistake(at, text);
        }
    }

    fn unknown(&mut self, section: &Section, name: &Name<'_>, command: &Command) {
        let plain = |name: &str| name.to_lowercase().replace(['_', '.', ' '], "-");
        let text = format!("[{}] has no setting \"{}\"", section.name, name.get_ref());
        let like = section.settings(command).map(key).find(|key| near(key, &plain(name.get_ref())));
        let text = like.map_or_else(|| text.clone(), |like| format!("{text}; did you mean {like}?"));
        self.mistake(name.span().start, text);
    }

    fn mistake(&mut self, at: usize, text: String) {
        let place = Place::File(self.path.to_owned(), Some(self.line(at)));
        self.file.mistakes.push(Mistake { place, text });
    }

    fn line(&self, at: usize) -> usize {
        1 + self.text.bytes().take(at).filter(|&byte| byte == b'\n').count()
    }
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(value) => Some(value.to_string()),
        _ => None,
    }
}
