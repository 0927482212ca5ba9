//! Settings of the daemons: flags precede the environment, a file, and defaults. Every flag is also an
//! environment variable and a key of the file.

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
