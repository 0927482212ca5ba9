use std::fmt;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use std::ffi::OsString;

use super::definition::{is_list, is_switch, key};

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The source of the value.
    pub place: Place,
    /// What is wrong.
    pub text: String,
}

/// The source of a setting's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file, with the line, counted from 1, if a single line has the value.
    File(PathBuf, Option<usize>),
    /// An environment variable.
    Variable(String),
    /// The command line.
    CommandLine,
    /// No source: the value is the default.
    Default,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, Some(line)) => write!(f, "{}:{line}", path.display()),
            Self::File(path, None) => write!(f, "{}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::CommandLine => f.write_str("command line"),
            Self::Default => f.write_str("default"),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

/// Several mistakes, printed one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("settings that cannot work")?;
        self.0.iter().try_for_each(|mistake| write!(f, "\n  {mistake}"))
    }
}

impl std::error::Error for Mistakes {}

/// The error for a value, according to its type and the rules of the command line.
pub fn fault(setting: &Arg, value: OsString) -> Option<String> {
    // Do not check which other settings it requires: another layer may have them.
    let mut alone =
        Arg::new("value").long("value").require_equals(true).value_parser(setting.get_value_parser().clone());
    if is_list(setting) {
        alone = alone.action(clap::ArgAction::Append);
    }
    let mut word = OsString::from("--value=");
    word.push(&value);
    let command = Command::new("setting").no_binary_name(true).disable_help_flag(true).arg(alone);
    let error = command.try_get_matches_from([word]).err()?;
    let text = match error.kind() {
        _ if value.is_empty() => "is empty".to_owned(),
        _ if is_switch(setting) => "must be true or false".to_owned(),
        ErrorKind::InvalidValue => match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(valid)) => format!("must be one of {}", valid.join(", ")),
            _ => "is not valid".to_owned(),
        },
        _ => std::error::Error::source(&error).map_or_else(|| "is not valid".to_owned(), ToString::to_string),
    };
    Some(format!("{} = {:?}: {text}", key(setting), value.to_string_lossy()))
}
