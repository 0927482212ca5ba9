//! Developer tasks: `cargo xtask setup | install | uninstall | demo | picture | dist | test | bench | soak | chaos`.

mod aarch64;
mod apt_sources;
mod arguments;
mod bench;
mod build;
mod chaos;
mod demo;
mod dist;
mod install;
mod other_apt;
mod pgvector;
mod picture;
mod setup;
mod soak;
mod system;
mod test;
mod test_tools;
mod uninstall;
mod unpacked;
mod versions;

use std::process::ExitCode;

use clap::Parser;
use harness::{apt, step};

use arguments::{Arguments, Task};

fn main() -> ExitCode {
    let result = match &Arguments::parse().task {
        Task::Setup(options) => setup::run(options.postgres.pg_config.as_deref(), options.pgvector.replace).map(drop),
        Task::Install(postgres) => install::run(postgres.pg_config.as_deref()),
        Task::Uninstall(postgres) => uninstall::run(postgres.pg_config.as_deref()),
        Task::Demo(options) => demo::run(options),
        Task::Picture(picture) => picture::run(&picture.dir),
        Task::Dist(options) => dist::run(options),
        Task::Soak => soak::run(),
        Task::Chaos(chaos) => chaos::run(&chaos.words),
        Task::Test(options) => test::run(options),
        Task::Bench(bench) => bench::run(&bench.words),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
