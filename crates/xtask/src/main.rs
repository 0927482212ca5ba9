//! Developer tasks: `cargo xtask setup | install | demo | dist | test | bench | soak | chaos`.

mod aarch64;
mod apt;
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
mod setup;
mod soak;
mod step;
mod test;
mod test_tools;
mod unpacked;
mod versions;

use std::process::ExitCode;

use arguments::Task;

fn main() -> ExitCode {
    let result = arguments::parse(std::env::args().skip(1)).and_then(|task| match task {
        Task::Help => {
            println!("{}", arguments::USAGE);
            Ok(())
        }
        Task::Setup { pg_config } => setup::run(pg_config.as_deref()).map(drop),
        Task::Install { pg_config } => install::run(pg_config.as_deref()),
        Task::Demo(options) => demo::run(&options),
        Task::Dist(options) => dist::run(&options),
        Task::Soak => soak::run(),
        Task::Chaos(words) => chaos::run(&words),
        Task::Test { name, pg } => test::run(name.as_deref(), pg),
        Task::Bench(bench) => bench::run(&bench),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
