//! Which settings exist, and what are they called? Derived from the definition of the command line.

use clap::builder::BoolishValueParser;
use clap::{Arg, ArgAction, Command, CommandFactory, value_parser};
use std::path::PathBuf;

use crate::args::Arguments;

/// The configuration file if neither flag nor variable names one.
pub const DEFAULT_FILE: &str = "/etc/lantern-index/config.toml";

/// The flag of daemons and of `config` that names the configuration file.
pub const FILE_FLAG: &str = "config";

/// The environment variable that names the configuration file.
pub const FILE_VARIABLE: &str = "LANTERN_INDEX_CONFIG";

/// A daemon and its settings.
pub struct Section {
    /// The subcommand, which is also the name of the table in the file.
    pub name: &'static str,
    /// The prefix of its environment variables.
    prefix: &'static str,
}

/// All daemons.
pub const SECTIONS: [Section; 2] =
    [Section { name: "serve", prefix: "LANTERN_INDEX_" }, Section { name: "router", prefix: "LANTERN_INDEX_ROUTER_" }];

/// The definition of the command line, with an environment variable for every setting.
pub fn command() -> Command {
    let file = || {
        Arg::new(FILE_FLAG)
            .long(FILE_FLAG)
            .value_name("FILE")
            .env(FILE_VARIABLE)
            .value_parser(value_parser!(PathBuf))
            .help(format!("File with settings (TOML) [default: {DEFAULT_FILE} if it exists]"))
    };
    let mut command = Arguments::command();
    for section in &SECTIONS {
        let layers = format!(
            "What no flag says is taken from the environment ({}…), else from [{}] in the configuration file, where keys are \
             flags without their dashes.",
            section.prefix, section.name
        );
        command = command.mut_subcommand(section.name, |daemon| {
            daemon.mut_args(|arg| section.setting(arg)).arg(file()).after_help(layers)
        });
    }
    command.mut_subcommand("config", |config| {
        config.mut_subcommand("check", |check| check.arg(file())).mut_subcommand("show", |show| show.arg(file()))
    })
}

impl Section {
    /// The section with this name.
    pub fn find(name: &str) -> Option<&'static Section> {
        SECTIONS.iter().find(|section| section.name == name)
    }

    /// The section's settings in the order of their definition.
    pub fn settings<'a>(&self, command: &'a Command) -> impl Iterator<Item = &'a Arg> {
        let arguments = command.find_subcommand(self.name).into_iter().flat_map(Command::get_arguments);
        arguments.filter(|arg| is_setting(arg))
    }

    /// The environment variable of a setting.
    pub fn variable(&self, key: &str) -> String {
        format!("{}{}", self.prefix, key.to_uppercase().replace('-', "_"))
    }

    fn setting(&self, arg: Arg) -> Arg {
        let Some(key) = arg.get_long().filter(|_| is_setting(&arg)).map(str::to_owned) else { return arg };
        let arg = arg.env(self.variable(&key));
        if !matches!(arg.get_action(), ArgAction::SetTrue) {
            return arg;
        }
        // A switch that the file turns on must be possible to turn off on the command line.
        arg.action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .value_name("BOOL")
            .value_parser(BoolishValueParser::new())
            .default_value("false")
            .default_missing_value("true")
            .hide_possible_values(true)
            .hide_default_value(true)
    }
}

/// The name of a setting in the file: its flag without the dashes.
pub fn key(setting: &Arg) -> &str {
    setting.get_long().unwrap_or_default()
}

/// Whether a setting is on or off and needs no value on the command line.
pub fn is_switch(setting: &Arg) -> bool {
    setting.get_num_args().is_some_and(|range| range.min_values() == 0)
}

/// Whether a setting may be repeated.
pub fn is_list(setting: &Arg) -> bool {
    matches!(setting.get_action(), ArgAction::Append)
}

/// Whether `written` is probably a misspelling of `known`.
pub fn near(known: &str, written: &str) -> bool {
    written.len() < 64 && strsim::damerau_levenshtein(known, written) <= 2
}

fn is_setting(arg: &Arg) -> bool {
    let name = arg.get_long();
    name.is_some_and(|name| name != FILE_FLAG)
        && matches!(arg.get_action(), ArgAction::Set | ArgAction::Append | ArgAction::SetTrue)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_accepts_the_definition() {
        command().debug_assert();
    }

    #[test]
    fn every_setting_has_one_name_in_each_place() {
        let command = command();
        for section in &SECTIONS {
            let settings: Vec<&Arg> = section.settings(&command).collect();
            assert!(settings.len() > 10, "{}", settings.len());
            for setting in settings {
                let variable = section.variable(key(setting));
                assert_eq!(setting.get_env().unwrap(), variable.as_str());
                assert!(
                    setting.get_short().is_none(),
                    "{variable}: a short flag would be missed where layers are merged"
                );
            }
        }
        let port = Section::find("serve").unwrap().variable("status-port");
        assert_eq!(port, "LANTERN_INDEX_STATUS_PORT");
    }
}
