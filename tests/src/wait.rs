use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Polls `ask` until it returns a value; fails with `what` after `limit`.
pub fn wait_for<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if start.elapsed() > limit {
            bail!("waited {:.0} s for {what}, in vain", limit.as_secs_f64());
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Runs `work` while another thread calls `look` after each `pause`, and once more when the work is done.
pub fn beside<T>(pause: Duration, mut look: impl FnMut() + Send, work: impl FnOnce() -> T) -> T {
    let (done, over) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            while over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                look();
            }
            look();
        });
        let result = work();
        drop(done);
        result
    })
}

/// Runs a function and panics if it takes longer than `limit`.
pub fn within<T>(what: &str, limit: Duration, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    let took = start.elapsed();
    assert!(took <= limit, "{what} took {:.1} s, the limit is {:.1} s", took.as_secs_f64(), limit.as_secs_f64());
    result
}
