//! Environment variables that look like settings but are none.

use std::env;
use std::ffi::OsStr;

use clap::Command;

use super::definition::{FILE_VARIABLE, SECTIONS, key, near};

/// The common prefix of all settings' variables.
const PREFIX: &str = "LANTERN_INDEX_";

/// A mistake for each environment variable that has the prefix but belongs to no setting.
pub fn unknown(command: &Command) -> Vec<String> {
    // Variables whose names are not UTF-8 cannot have the prefix.
    let mut names: Vec<String> = env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    names.sort();
    names.iter().filter(|name| name.starts_with(PREFIX)).filter_map(|name| mistake(name, command)).collect()
}

fn mistake(name: &str, command: &Command) -> Option<String> {
    let settings =
        SECTIONS.iter().flat_map(|section| section.settings(command).map(|setting| section.variable(key(setting))));
    let known: Vec<String> = settings.chain([FILE_VARIABLE.to_owned()]).collect();
    if known.iter().any(|known| known == name) || is_service_link(name) {
        return None;
    }
    let hint = known.iter().find(|known| near(known, name)).map(|known| format!("; did you mean {known}?"));
    Some(format!("{name}: no setting has this variable{}", hint.unwrap_or_default()))
}

/// Whether Kubernetes sets the variable, with the address of a service such as `lantern-index-router`.
fn is_service_link(name: &str) -> bool {
    let numbered = name.rsplit_once("_PORT_").is_some_and(|(_, port)| port.starts_with(|c: char| c.is_ascii_digit()));
    numbered || name.ends_with("_SERVICE_HOST") || name.ends_with("_SERVICE_PORT") || name.contains("_SERVICE_PORT_")
}

/// Whether Kubernetes has set the variable: for a service `lantern-index-router`, for instance, `LANTERN_INDEX_ROUTER_PORT` is an address such
/// as `tcp://10.0.0.1:8998`.
pub(super) fn is_service_address(name: &OsStr, value: &OsStr) -> bool {
    name.to_string_lossy().ends_with("_PORT") && value.to_string_lossy().contains("://")
}

#[cfg(test)]
mod tests {
    use super::mistake;
    use crate::config::definition::command;

    #[test]
    fn only_variables_of_no_setting_are_mistakes() {
        let command = command();
        for known in [
            "LANTERN_INDEX_CONFIG",
            "LANTERN_INDEX_STATUS_PORT",
            "LANTERN_INDEX_ROUTER_MAX_BUILDERS",
            "LANTERN_INDEX_ROUTER_SERVICE_HOST",
            "LANTERN_INDEX_ROUTER_PORT_8998_TCP_ADDR",
            "LANTERN_INDEX_SERVICE_PORT_STATUS",
        ] {
            assert_eq!(mistake(known, &command), None, "{known}");
        }
        for (slip, meant) in [
            ("LANTERN_INDEX_TOKEN_FLE", "; did you mean LANTERN_INDEX_TOKEN_FILE?"),
            ("LANTERN_INDEX_ROUTER_MAX_BULIDERS", "; did you mean LANTERN_INDEX_ROUTER_MAX_BUILDERS?"),
            ("LANTERN_INDEX_CONFG", "; did you mean LANTERN_INDEX_CONFIG?"),
            ("LANTERN_INDEX_BROOMSTICK", "no setting has this variable"),
        ] {
            let text = mistake(slip, &command).unwrap();
            assert!(text.starts_with(slip) && text.ends_with(meant), "{text}");
        }
    }
}
