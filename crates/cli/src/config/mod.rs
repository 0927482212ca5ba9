//! Settings of the daemons: flags, over the environment, over a file, over defaults. Whatever is a flag is all of it.

mod command;
mod definition;
mod file;
mod layers;
mod mistake;
mod trial;
mod variables;

pub use command::{check, show};
pub use definition::command;
pub use layers::{Stop, parse};
