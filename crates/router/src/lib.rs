//! The router: databases connect to it; it finds or starts a builder for each build, and relays or redirects the client.
//!
//! `scheduler` makes the decisions, without clock or network; `pool` carries them out with a `spawner`; `session` serves clients.

mod admission;
mod boundary;
mod config;
mod error;
mod fixed;
mod handover;
mod health;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod lantern;
mod opening;
mod pool;
mod process;
mod relay;
mod relayed;
mod router;
mod scheduler;
mod sent;
mod session;
mod spawner;
mod stages;
mod stream;
mod tls;

pub use config::{Config, Mode, Source};
pub use error::RouterError;
pub use fixed::FixedBuilder;
#[cfg(feature = "kubernetes")]
pub use kubernetes::{KubernetesConfig, TemplateError, check_template};
pub use process::ProcessConfig;
pub use router::Router;
pub use scheduler::Rules;
pub use tls::{BuilderTls, BuilderTlsError};
