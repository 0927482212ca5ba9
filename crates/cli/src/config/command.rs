use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;

use anyhow::{Context, anyhow};
use clap::{Arg, ArgMatches, FromArgMatches};

use super::definition::{SECTIONS, Section, command, is_list, is_switch, key};
use super::layers::{Layers, Stop, file};
use super::mistake::Place;
use super::{trial, variables};
use crate::args::Arguments;
use crate::failure::Failure;
use crate::print;

/// Reports invalid settings, and valid ones that a daemon would refuse when it starts, such as missing files.
pub fn check() -> Result<(), Failure> {
    let definition = command();
    let file = file(&definition, &env::args_os().collect::<Vec<_>>());
    let mut found = variables::unknown(&definition);
    for section in &SECTIONS {
        let words = command_line(section);
        let layers = Layers { command: &definition, section, file: &file, words: &words };
        let more = match layers.merge() {
            Ok(matches) => refused_at_start(&layers, &matches)?,
            Err(stop) => messages(stop),
        };
        // Mistakes in the file are found again for each section.
        found.extend(more.into_iter().filter(|text| !found.contains(text)).collect::<Vec<_>>());
    }
    if !found.is_empty() {
        return Err(Failure::Usage(anyhow!("settings that cannot work\n  {}", found.join("\n  "))));
    }
    let read = file.path.map_or_else(|| "no configuration file".to_owned(), |path| path.display().to_string());
    print(format!("{read}: no mistakes\n"))
}

/// What a daemon would refuse, with the source of each setting at fault.
fn refused_at_start(layers: &Layers<'_>, matches: &ArgMatches) -> Result<Vec<String>, Failure> {
    let arguments = Arguments::from_arg_matches(matches).context("settings do not fit their definition")?;
    let values = matches.subcommand_matches(layers.section.name).context("settings do not fit their definition")?;
    // Other failures may be temporary, and do not make settings invalid.
    let findings = trial::findings(&arguments.command).into_iter();
    let mistakes = findings.filter(|finding| matches!(finding.failure, Failure::Usage(_))).map(|finding| {
        let text = finding.failure.to_string().replace('\n', "\n    ");
        let setting = layers.section.settings(layers.command).find(|setting| Some(key(setting)) == finding.setting);
        match setting.map(|setting| (key(setting), layers.place(setting, values))) {
            None | Some((_, Place::Default)) => format!("[{}]: {text}", layers.section.name),
            Some((key, place)) => format!("{place}: {key}: {text}"),
        }
    });
    Ok(mistakes.collect())
}

/// Prints the settings of all daemons and the source of each.
pub fn show() -> Result<(), Failure> {
    let definition = command();
    let file = file(&definition, &env::args_os().collect::<Vec<_>>());
    let mut text = String::new();
    for section in &SECTIONS {
        let words = command_line(section);
        let layers = Layers { command: &definition, section, file: &file, words: &words };
        let matches = layers.merge().map_err(|stop| Failure::Usage(anyhow!("{}", messages(stop).join("\n"))))?;
        let matches = matches.subcommand_matches(section.name).context("settings do not fit their definition")?;
        let _ = writeln!(text, "[{}]", section.name);
        for setting in section.settings(&definition) {
            let place = layers.place(setting, matches);
            // Comment defaults out: a saved file must not pin them, since a later release may have others.
            let mark = if place == Place::Default { "# " } else { "" };
            let line = format!("{mark}{}", line(setting, matches));
            let _ = writeln!(text, "{line:<44} # {}", source(&place, matches.contains_id(setting.get_id().as_str())));
        }
    }
    print(text)
}

fn command_line(section: &Section) -> [OsString; 2] {
    ["lantern-index".into(), section.name.into()]
}

fn messages(stop: Stop) -> Vec<String> {
    match stop {
        Stop::Clap(error) => {
            let text = error.to_string();
            let end = text.find("\n\nUsage").unwrap_or(text.len());
            vec![text[..end].trim_start_matches("error: ").to_owned()]
        }
        Stop::Mistakes(mistakes) => mistakes.0.iter().map(ToString::to_string).collect(),
    }
}

fn source(place: &Place, has_value: bool) -> String {
    match place {
        Place::Default if !has_value => "not set".to_owned(),
        place => place.to_string(),
    }
}

/// A line of the configuration file with this setting.
fn line(setting: &Arg, matches: &ArgMatches) -> String {
    let raw = matches.get_raw(setting.get_id().as_str()).into_iter().flatten();
    let values: Vec<String> = raw.map(|value| value.to_string_lossy().into_owned()).collect();
    let quoted = |value: &String| match value.parse::<i64>() {
        Ok(_) => value.clone(),
        Err(_) => toml::Value::from(value.as_str()).to_string(),
    };
    match (values.as_slice(), key(setting)) {
        ([], key) => format!("{key} ="),
        (values, key) if is_list(setting) => {
            format!("{key} = [{}]", values.iter().map(quoted).collect::<Vec<_>>().join(", "))
        }
        ([value, ..], key) if is_switch(setting) => {
            format!(
                "{key} = {}",
                matches.get_one::<bool>(setting.get_id().as_str()).map_or(value.clone(), bool::to_string)
            )
        }
        ([value, ..], key) => format!("{key} = {}", quoted(value)),
    }
}
