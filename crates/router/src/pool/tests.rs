use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use service::{Activity, Client, Clock, Role};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Pool;
use crate::scheduler::{Demand, Rules};
use crate::spawner::{Boxed, Builder, Facts, Order, Place, SpawnError, Spawner};

/// Builders without builds that outlive the router, and the number of those that it has left to other routers.
#[derive(Clone, Default)]
struct Pods(Arc<AtomicUsize>);

struct Pod {
    facts: Facts,
    left: Arc<AtomicUsize>,
}

impl Spawner for Pods {
    fn start(&self, _order: Order) -> Boxed<'_, Result<Arc<dyn Builder>, SpawnError>> {
        Box::pin(async {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let status_port = listener.local_addr().unwrap().port();
            tokio::spawn(async move { while answer(&listener).await.is_ok() {} });
            let place = Place { host: None, port: 0, status_host: None, status_port, clock: Clock::default() };
            let pod = Pod { facts: Facts::new("pod".to_owned(), place, 0), left: self.0.clone() };
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
        Box::pin(std::future::pending())
    }

    fn stop(&self) -> Boxed<'_, ()> {
        Box::pin(async {})
    }

    fn let_go(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            // An answer of the API server takes time.
            sleep(Duration::from_millis(300)).await;
            self.left.fetch_add(1, Ordering::Relaxed);
        })
    }
}

#[tokio::test]
async fn a_router_that_ends_has_left_its_builders_to_others() {
    let (pods, drain) = (Pods::default(), CancellationToken::new());
    let rules = Rules { min_builders: 2, ..Rules::default() };
    let activity = Arc::new(Activity::new(Role::Router, "0", false).unwrap());
    let pool = Pool::start(rules, Arc::new(pods.clone()), None, activity, drain.clone());
    let client = Client::unnamed(([127, 0, 0, 1], 5432).into());
    let mut request = pool.ask(Demand::new(client, 0, |bytes| bytes));
    let mut builders = pool.builders();
    let started = async {
        let lease = request.answer().await.unwrap().ok().unwrap();
        builders.wait_for(|all| all.iter().filter(|one| one.state == "idle").count() == 1).await.unwrap();
        lease
    };
    let lease = timeout(Duration::from_secs(60), started).await.unwrap();
    drain.cancel();
    drop(lease);
    pool.close().await;
    assert_eq!(pods.0.load(Ordering::Relaxed), 2);
}
