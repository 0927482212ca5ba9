use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use service::{Clock, lock};

use crate::health;
use crate::spawner::{Boxed, Builder, Facts, Order, Place, SpawnError, Spawner};

/// The interval of health checks.
const CHECK: Duration = Duration::from_secs(1);
/// After this many consecutive failed health checks a builder counts as lost.
const MISSES: u32 = 3;

/// A builder that the router does not run itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedBuilder {
    /// Its name or address.
    pub host: String,
    /// Its port for builds.
    pub port: u16,
    /// Its port for status requests.
    pub status_port: u16,
}

/// Builders from a list. Starting one means taking a healthy builder from the list, stopping one means putting it back.
pub(crate) struct Fixed {
    free: Free,
}

/// Unused builders, the most recently used at the end.
type Free = Arc<Mutex<VecDeque<FixedBuilder>>>;

impl Fixed {
    pub(crate) fn new(builders: Vec<FixedBuilder>) -> Self {
        Self { free: Arc::new(Mutex::new(builders.into())) }
    }

    async fn find(&self, order: Order) -> Result<Arc<dyn Builder>, SpawnError> {
        let tries = lock(&self.free).len();
        let mut ill = Vec::new();
        for _ in 0..tries {
            let Some(next) = lock(&self.free).pop_front() else { break };
            let found = Found::new(next, order.memory, self.free.clone());
            if health::is_ready(&found.facts.place).await {
                return Ok(Arc::new(found));
            }
            ill.push(found.facts.name.clone());
            found.put_back();
        }
        Err(SpawnError {
            hint: "Look whether the builders run and are not drained; the router must reach their status ports."
                .to_owned(),
            ..SpawnError::passing(if ill.is_empty() {
                "all builders of the list are taken".to_owned()
            } else {
                format!("not ready: {}", ill.join(", "))
            })
        })
    }
}

impl Spawner for Fixed {
    fn start(&self, order: Order) -> Boxed<'_, Result<Arc<dyn Builder>, SpawnError>> {
        Box::pin(self.find(order))
    }

    fn outlives_router(&self) -> bool {
        true
    }
}

struct Found {
    builder: FixedBuilder,
    facts: Facts,
    free: Free,
    back: AtomicBool,
    /// Whether it may have a build.
    builds: AtomicBool,
}

impl Found {
    fn new(builder: FixedBuilder, memory: u64, free: Free) -> Self {
        let place = Place {
            host: Some(builder.host.clone()),
            port: builder.port,
            status_host: None,
            status_port: builder.status_port,
            clock: Clock::default(),
        };
        let facts = Facts::new(format!("{}:{}", builder.host, builder.port), place, memory);
        Self { builder, facts, free, back: AtomicBool::new(false), builds: AtomicBool::new(false) }
    }

    /// Puts the builder back into the list, once. `stop` does not leave it to `drop`: the health check holds its `Arc` longer.
    fn put_back(&self) {
        if !self.back.swap(true, Ordering::Relaxed) {
            lock(&self.free).push_back(self.builder.clone());
        }
    }
}

impl Builder for Found {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn gone(&self) -> Boxed<'_, String> {
        Box::pin(async {
            let (mut misses, mut why, mut heard) = (0, "", Instant::now());
            while misses < MISSES {
                if self.back.load(Ordering::Relaxed) {
                    return "it was put back".to_owned();
                }
                sleep(CHECK).await;
                let builds = health::builds(&self.facts.place).await;
                if builds.is_ok() {
                    heard = Instant::now();
                }
                (misses, why) = match builds {
                    // A builder that is drained finishes its builds.
                    Ok(builds) if builds.ready || builds.active > 0 => (0, why),
                    Ok(_) => (misses + 1, health::NOT_READY),
                    // Its build may go on: perhaps only the router cannot reach it.
                    Err(_) if self.builds.load(Ordering::Relaxed) && heard.elapsed() < health::LOST_BUSY => (0, why),
                    Err(_) => (misses + 1, "its status port does not answer"),
                };
            }
            why.to_owned()
        })
    }

    fn stop(&self) -> Boxed<'_, ()> {
        self.put_back();
        Box::pin(async {})
    }

    fn show_building(&self, building: bool) {
        self.builds.store(building, Ordering::Relaxed);
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        // For a start that was cancelled; otherwise `find` or `stop` has done it.
        self.put_back();
    }
}
