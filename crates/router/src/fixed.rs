use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use service::{Clock, lock};

use crate::health;
use crate::spawner::{Boxed, Builder, Facts, Order, Place, SpawnError, Spawner};

/// The interval of health checks.
const CHECK: Duration = Duration::from_secs(1);
/// After this many consecutive failed health checks a builder counts as lost.
const MISSES: u32 = 3;
/// The most builders that a start asks at a time.
const AT_ONCE: usize = 32;

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

    /// Takes the first builder that is ready. Several are asked at a time, since one that cannot be reached answers late. None is taken
    /// before it has answered: other starts would lack it.
    async fn find(&self, order: Order) -> Result<Arc<dyn Builder>, SpawnError> {
        let until = Instant::now() + order.limit;
        let found = |builder: &FixedBuilder| Arc::new(Found::new(builder.clone(), order.memory, self.free.clone()));
        let list: Vec<_> = lock(&self.free).iter().map(found).collect();
        let mut ill = Vec::new();
        for some in list.chunks(AT_ONCE) {
            let ask = |found: Arc<Found>| async move { health::is_ready(&found.facts.place).await };
            let answers: Vec<_> = some.iter().map(|found| tokio::spawn(ask(found.clone()))).collect();
            for (found, answer) in some.iter().zip(answers) {
                let is_ready = matches!(timeout_at(until, answer).await, Ok(Ok(true)));
                let is_taken = found.take();
                if is_ready && is_taken {
                    return Ok(found.clone());
                }
                if !is_ready {
                    ill.push(found.facts.name.clone());
                }
                found.put_back();
            }
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
    /// Whether it is in the list, or was put back there.
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
        Self { builder, facts, free, back: AtomicBool::new(true), builds: AtomicBool::new(false) }
    }

    /// Takes the builder out of the list, unless another start has done so.
    fn take(&self) -> bool {
        let mut free = lock(&self.free);
        let at = free.iter().position(|builder| *builder == self.builder);
        let taken = at.and_then(|at| free.remove(at)).is_some();
        self.back.store(!taken, Ordering::Relaxed);
        taken
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::{Notify, watch};
    use tokio::time::Instant;

    use super::{Fixed, FixedBuilder, health};
    use crate::spawner::{Builder, Order, SpawnError};

    /// A status port and its builder.
    async fn builder() -> (TcpListener, FixedBuilder) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let status_port = listener.local_addr().unwrap().port();
        (listener, FixedBuilder { host: "127.0.0.1".to_owned(), port: status_port, status_port })
    }

    async fn find(fixed: &Fixed, limit: Duration) -> Result<Arc<dyn Builder>, SpawnError> {
        fixed.find(Order { memory: 0, limit, tell: watch::channel(String::new()).0 }).await
    }

    #[tokio::test]
    async fn builders_are_asked_at_the_same_time_and_the_first_is_taken() {
        let ((one, first), (other, second)) = (builder().await, builder().await);
        let name = format!("127.0.0.1:{}", first.port);
        let asked = Arc::new(Notify::new());
        // The first answers only once the second was asked.
        for (listener, is_first) in [(one, true), (other, false)] {
            let asked = asked.clone();
            tokio::spawn(async move {
                let mut stream = listener.accept().await.unwrap().0;
                if is_first {
                    asked.notified().await;
                } else {
                    asked.notify_one();
                }
                assert!(stream.read(&mut [0; 1000]).await.unwrap() > 0);
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            });
        }
        let fixed = Fixed::new(vec![first.clone(), second.clone()]);
        let found = find(&fixed, Duration::from_secs(60)).await.unwrap();
        assert_eq!(found.facts().name, name);
        assert!(!fixed.free.lock().unwrap().contains(&first));
        found.stop().await;
        assert_eq!(*fixed.free.lock().unwrap(), [second, first]);
    }

    #[tokio::test(start_paused = true)]
    async fn silent_builders_are_given_up_at_the_time_limit() {
        let (_listener, silent) = builder().await;
        let fixed = Fixed::new(vec![silent; 3]);
        let (begun, limit) = (Instant::now(), Duration::from_secs(2));
        assert!(limit < health::PATIENCE);
        let Err(error) = find(&fixed, limit).await else { panic!("no builder is ready") };
        assert!(begun.elapsed() < health::PATIENCE, "{:?}", begun.elapsed());
        assert!(error.text.starts_with("not ready: 127.0.0.1:"), "{error}");
        assert_eq!(fixed.free.lock().unwrap().len(), 3);
    }
}
