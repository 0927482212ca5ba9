//! Which value does a setting have? Flags precede the environment, the file, and defaults.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Command, parser::ValueSource};

use super::definition::{DEFAULT_FILE, FILE_VARIABLE, Section, key};
use super::file::File;
use super::mistake::{Mistake, Mistakes, Place, fault};
use super::variables::is_service_address;

/// Why there are no arguments to run with.
#[derive(Debug)]
pub enum Stop {
    /// Help or version was requested, or there is a usage error.
    Clap(clap::Error),
    /// Some settings are invalid.
    Mistakes(Mistakes),
}

/// Parses the command line together with environment and file; the first word is the program.
pub fn parse(command: &Command, words: &[OsString]) -> Result<ArgMatches, Stop> {
    match words.get(1).and_then(|word| Section::find(word.to_str()?)) {
        Some(section) => {
            let plain = command.clone().try_get_matches_from(words);
            // Help must work with invalid settings.
            if let Err(error) = plain
                && !error.use_stderr()
            {
                return Err(Stop::Clap(error));
            }
            let file = file(command, words);
            Layers { command, section, file: &file, words }.merge()
        }
        None => command.clone().try_get_matches_from(words).map_err(Stop::Clap),
    }
}

/// The configuration file that the command line names, else the environment, else the default one.
pub fn file(command: &Command, words: &[OsString]) -> File {
    let flag = OsStr::new("--config");
    let attached = |word: &OsString| word.to_str().and_then(|word| word.strip_prefix("--config=")).map(PathBuf::from);
    let given = words.iter().enumerate().find_map(|(at, word)| match word == flag {
        true => words.get(at + 1).map(PathBuf::from),
        false => attached(word),
    });
    match given.or_else(|| env::var_os(FILE_VARIABLE).map(PathBuf::from)) {
        Some(path) => File::read(&path, true, command),
        None => File::read(Path::new(DEFAULT_FILE), false, command),
    }
}

/// The sources of one daemon's settings.
pub struct Layers<'a> {
    /// The definition of the command line.
    pub command: &'a Command,
    /// The daemon.
    pub section: &'static Section,
    /// The configuration file.
    pub file: &'a File,
    /// The words of the command line, with the program.
    pub words: &'a [OsString],
}

impl Layers<'_> {
    /// The arguments with the values of all layers.
    pub fn merge(&self) -> Result<ArgMatches, Stop> {
        let mut mistakes = self.file.mistakes.clone();
        let mut command = self.command.clone();
        let ignored = self.section.settings(self.command).filter(|setting| is_ignored(setting));
        let mut ignored: Vec<clap::Id> = ignored.map(|setting| setting.get_id().clone()).collect();
        for (variable, text, id) in self.faults_of_variables() {
            mistakes.push(Mistake { place: Place::Variable(variable), text });
            ignored.push(id);
        }
        for id in ignored {
            command = command
                .mut_subcommand(self.section.name, |daemon| daemon.mut_arg(id, |arg| arg.env(None::<&'static str>)));
        }
        let result = command.try_get_matches_from(self.merged_words());
        match result {
            Ok(matches) if mistakes.is_empty() => Ok(matches),
            Err(error) if mistakes.is_empty() => Err(Stop::Clap(error)),
            Ok(_) => Err(Stop::Mistakes(Mistakes(mistakes))),
            Err(error) => {
                // Ignore missing and conflicting arguments: the value in question may be among the mistakes.
                if !matches!(error.kind(), ErrorKind::MissingRequiredArgument | ErrorKind::ArgumentConflict) {
                    let text = error.to_string();
                    let text = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
                    mistakes.push(Mistake { place: Place::CommandLine, text });
                }
                Err(Stop::Mistakes(Mistakes(mistakes)))
            }
        }
    }

    /// The source of a setting's value.
    pub fn place(&self, setting: &Arg, matches: &ArgMatches) -> Place {
        match matches.value_source(setting.get_id().as_str()) {
            Some(ValueSource::EnvVariable) => Place::Variable(self.section.variable(key(setting))),
            Some(ValueSource::CommandLine) if self.is_given(setting) => Place::CommandLine,
            Some(ValueSource::CommandLine) => self.place_in_file(setting),
            _ => Place::Default,
        }
    }

    fn place_in_file(&self, setting: &Arg) -> Place {
        let entry = self.file.entries.get(&(self.section.name, key(setting).to_owned()));
        Place::File(self.file.path.clone().unwrap_or_default(), entry.map(|entry| entry.line))
    }

    /// The command line, extended by settings of the file.
    fn merged_words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = self.words.iter().take(2).cloned().collect();
        for setting in self.section.settings(self.command) {
            let entry = self.file.entries.get(&(self.section.name, key(setting).to_owned()));
            if let Some(entry) = entry.filter(|_| !self.is_given(setting) && variable(setting).is_none()) {
                words.extend(entry.values.iter().map(|value| format!("--{}={value}", key(setting)).into()));
            }
        }
        words.extend(self.words.iter().skip(2).cloned());
        words
    }

    /// Whether a flag is on the command line. A word that begins with two dashes is a flag, unless it follows one that takes such words as
    /// its value.
    fn is_given(&self, setting: &Arg) -> bool {
        let flag = format!("--{}", key(setting));
        let with_dashes = self.section.settings(self.command).filter(|other| other.is_allow_hyphen_values_set());
        let with_dashes: Vec<String> = with_dashes.map(|other| format!("--{}", key(other))).collect();
        let before = std::iter::once(None).chain(self.words.iter().map(Some));
        self.words.iter().zip(before).any(|(word, before)| {
            let is_value = before.is_some_and(|before| with_dashes.iter().any(|flag| before == flag.as_str()));
            let word = word.as_encoded_bytes();
            !is_value && word.strip_prefix(flag.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'=')
        })
    }

    fn faults_of_variables(&self) -> Vec<(String, String, clap::Id)> {
        let settings = self.section.settings(self.command).filter(|setting| !self.is_given(setting));
        let faults = settings.filter_map(|setting| {
            let value = variable(setting)?;
            let text = fault(setting, value)?;
            Some((self.section.variable(key(setting)), text, setting.get_id().clone()))
        });
        faults.collect()
    }
}

fn variable(setting: &Arg) -> Option<OsString> {
    let name = setting.get_env()?;
    env::var_os(name).filter(|value| !is_service_address(name, value))
}

/// Whether the setting's variable has a value that is not meant for it.
fn is_ignored(setting: &Arg) -> bool {
    variable(setting).is_none() && setting.get_env().and_then(env::var_os).is_some()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::definition;

    fn merge(toml: &str, words: &str) -> Result<ArgMatches, Stop> {
        let command = definition::command();
        let words: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
        let file = File::parse(Path::new("c.toml"), toml, &command);
        let name = words[1].to_str().unwrap();
        let section = Section::find(name).unwrap();
        let matches = Layers { command: &command, section, file: &file, words: &words }.merge()?;
        Ok(matches.subcommand_matches(name).unwrap().clone())
    }

    fn mistakes(toml: &str, words: &str) -> Vec<String> {
        match merge(toml, words) {
            Err(Stop::Mistakes(mistakes)) => mistakes.0.iter().map(ToString::to_string).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_precede_the_file() {
        let toml = "[serve]\nport = 9000\nthreads = 3\nallow-plaintext-beyond-loopback = true\n";
        let matches = merge(toml, "lantern-index serve --port 9001").unwrap();
        assert_eq!(matches.get_one::<u16>("port"), Some(&9001));
        assert_eq!(matches.get_one::<u16>("threads"), Some(&3));
        assert_eq!(matches.get_one::<bool>("allow_plaintext_beyond_loopback"), Some(&true));
        let off = merge(toml, "lantern-index serve --allow-plaintext-beyond-loopback=false").unwrap();
        assert_eq!(off.get_one::<bool>("allow_plaintext_beyond_loopback"), Some(&false));
        assert_eq!(off.get_one::<u16>("port"), Some(&9000));
    }

    #[test]
    fn values_of_builder_arg_are_not_taken_for_flags() {
        let toml = "[router]\nmax-build-time = '4h'\n";
        for words in ["--builder-arg --max-build-time=2h", "--builder-arg=--max-build-time=2h"] {
            let matches = merge(toml, &format!("lantern-index router {words}")).unwrap();
            assert_eq!(matches.get_one::<Duration>("max_build_time"), Some(&Duration::from_secs(4 * 3600)), "{words}");
        }
    }

    #[test]
    fn halves_of_a_pair_may_come_from_different_places() {
        assert!(merge("[serve]\ncert = 'c'\n", "lantern-index serve --key k").is_ok());
        assert!(matches!(merge("[serve]\ncert = 'c'\n", "lantern-index serve"), Err(Stop::Clap(_))));
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let toml = "prot = 1\n[serve]\nport = 99999\nengine = \"steam\"\n\nidle_timeout = '10m'\nthreads = 'many'\n\
                    allow-plaintext-beyond-loopback = 'yes'\nhost = [1]\nlog-format = ''\n[wardrobe]\n";
        let found = mistakes(toml, "lantern-index serve --status-port none");
        let expected = [
            "c.toml:1: \"prot\" is none of the sections: [serve], [router]",
            "c.toml:3: port = \"99999\": 99999 is not in 0..=65535",
            "c.toml:4: engine = \"steam\": must be one of bulk, insertion, usearch",
            "c.toml:6: [serve] has no setting \"idle_timeout\"; did you mean idle-timeout?",
            "c.toml:7: threads = \"many\": invalid digit found in string",
            "c.toml:8: allow-plaintext-beyond-loopback must be true or false, without quotes",
            "c.toml:9: host must be a text or a number, not array",
            "c.toml:10: log-format = \"\": is empty",
            "c.toml:11: \"wardrobe\" is none of the sections: [serve], [router]",
            "command line: invalid value 'none' for '--status-port <PORT>': invalid digit found in string",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn broken_syntax_is_reported_with_its_lines() {
        let found = mistakes("[serve]\nhost = \nport = 1\nport = 2\n", "lantern-index serve");
        assert!(found.len() == 2 && found[0].starts_with("c.toml:2: "), "{found:?}");
        assert!(found[1].starts_with("c.toml:4: duplicate key"), "{found:?}");
    }
}
