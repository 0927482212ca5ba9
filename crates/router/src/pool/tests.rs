use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use service::{Activity, Client, Clock, Role};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Lease, Pool};
use crate::scheduler::{Demand, Rules};
use crate::spawner::{Boxed, Builder, Facts, Order, Place, SpawnError, Spawner};

/// Builders without builds that outlive the router.
#[derive(Clone, Default)]
struct Pods {
    /// How many the router has handed over to other routers.
    left: Arc<AtomicUsize>,
    /// Kills one.
    kill: Arc<Notify>,
}

struct Pod {
    facts: Facts,
    pods: Pods,
}

impl Spawner for Pods {
    fn start(&self, _order: Order) -> Boxed<'_, Result<Arc<dyn Builder>, SpawnError>> {
        Box::pin(async {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let status_port = listener.local_addr().unwrap().port();
            tokio::spawn(async move { while answer(&listener).await.is_ok() {} });
            let place = Place { host: None, port: 0, status_host: None, status_port, clock: Clock::default() };
            let pod = Pod { facts: Facts::new("pod".to_owned(), place, 0), pods: self.clone() };
            Ok(Arc::new(pod) as Arc<dyn Builder>)
        })
    }

    fn outlives_router(&self) -> bool {
        true
    }
}

/// Answers one request for metrics.
async fn answer(listener: &TcpListener) -> std::io::Result<()> {
    let mut stream = listener.accept().await?.0;
    let mut request = BufReader::new(&mut stream).lines();
    while request.next_line().await?.is_some_and(|line| !line.is_empty()) {}
    let metrics = "lantern_index_ready 1\nlantern_index_build_active 0\n";
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", metrics.len());
    stream.write_all((head + metrics).as_bytes()).await
}

impl Builder for Pod {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn gone(&self) -> Boxed<'_, String> {
        Box::pin(async {
            self.pods.kill.notified().await;
            "it was killed".to_owned()
        })
    }

    fn stop(&self) -> Boxed<'_, ()> {
        Box::pin(async {})
    }

    fn let_go(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            // An answer of the API server takes time.
            sleep(Duration::from_millis(300)).await;
            self.pods.left.fetch_add(1, Ordering::Relaxed);
        })
    }
}

/// A pool of these builders, and one of them for a build.
async fn lease(pods: &Pods, rules: Rules, drain: &CancellationToken) -> (Pool, Lease) {
    let activity = Arc::new(Activity::new(Role::Router, "0", false).unwrap());
    let pool = Pool::start(rules, Arc::new(pods.clone()), None, activity, drain.clone());
    let client = Client::unnamed(([127, 0, 0, 1], 5432).into());
    let lease = pool.ask(Demand::new(client, 0, |bytes| bytes)).answer().await.unwrap().ok().unwrap();
    (pool, lease)
}

#[tokio::test]
async fn a_loss_is_explained_by_the_builders_end_not_by_its_connection() {
    let pods = Pods::default();
    let reason = async {
        let (_pool, lease) = lease(&pods, Rules::default(), &CancellationToken::new()).await;
        let killed = async {
            // The connection breaks before the pool learns of the end.
            tokio::task::yield_now().await;
            pods.kill.notify_one();
        };
        tokio::join!(lease.failed("early eof".to_owned()), killed).0
    };
    assert_eq!(timeout(Duration::from_secs(60), reason).await.unwrap(), "it was killed");
}

#[tokio::test]
async fn a_router_that_ends_waits_until_its_builders_are_handed_over() {
    let (pods, drain) = (Pods::default(), CancellationToken::new());
    let rules = Rules { min_builders: 2, ..Rules::default() };
    let started = async {
        let (pool, lease) = lease(&pods, rules, &drain).await;
        let mut builders = pool.builders();
        builders.wait_for(|all| all.iter().filter(|one| one.state == "idle").count() == 1).await.unwrap();
        (pool, lease)
    };
    let (pool, lease) = timeout(Duration::from_secs(60), started).await.unwrap();
    drain.cancel();
    drop(lease);
    pool.close().await;
    assert_eq!(pods.left.load(Ordering::Relaxed), 2);
}
