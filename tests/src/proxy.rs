use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use rustix::net::sockopt::set_socket_recv_buffer_size;

use crate::wait_for;

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From PostgreSQL to the builder.
    ToBuilder,
    /// From the builder to PostgreSQL.
    ToClient,
}

/// A network between PostgreSQL and a builder, which can be slow, or stop or break at a given byte.
///
/// While a direction is stopped, its end or reset waits behind the bytes held back, as in a real network, until [`Proxy::reset`].
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Bytes passed since the last [`Proxy::reset`], by direction.
    passed: [u64; 2],
    /// The number of bytes that may pass; `None` for no limit.
    limit: [Option<u64>; 2],
    /// Bytes per second.
    speed: [Option<u32>; 2],
    /// The delay of each piece of up to 16 KiB.
    delay: [Duration; 2],
    /// The byte to alter, and the bits to flip in it.
    damage: [Option<(u64, u8)>; 2],
    /// Both ends of every connection.
    streams: Vec<TcpStream>,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 and connects to `builder` for every connection.
    pub fn start(builder: SocketAddr) -> Result<Self> {
        Self::start_on(Ipv4Addr::LOCALHOST, builder)
    }

    /// Listens on another loopback address, for instance 127.0.0.2.
    pub fn start_on(host: Ipv4Addr, builder: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((host, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A dead builder: the client sees the connection end.
                let Ok(builder) = TcpStream::connect(builder) else { continue };
                let _ = relay(&accepting, &client, &builder);
            }
        });
        Ok(Self { address, shared })
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Stops a direction after `bytes`, counted from the last [`Self::reset`].
    pub fn stop_after(&self, direction: Direction, bytes: u64) {
        self.change(|state| state.limit[direction as usize] = Some(bytes));
    }

    /// Limits a direction to this many bytes per second.
    pub fn slow(&self, direction: Direction, bytes_per_second: u32) {
        self.change(|state| state.speed[direction as usize] = Some(bytes_per_second));
    }

    /// Delays each piece of up to 16 KiB by this time.
    pub fn delay(&self, direction: Direction, time: Duration) {
        self.change(|state| state.delay[direction as usize] = time);
    }

    /// Flips `bits` of byte `at` of a direction once; bytes count from the last [`Self::reset`].
    pub fn damage(&self, direction: Direction, at: u64, bits: u8) {
        self.change(|state| state.damage[direction as usize] = Some((at, bits)));
    }

    /// Whether the altered byte has passed.
    pub fn is_damaged(&self, direction: Direction) -> bool {
        let state = self.shared.lock();
        state.damage[direction as usize].is_some_and(|(at, _)| at < state.passed[direction as usize])
    }

    /// Closes all connections.
    pub fn cut(&self) {
        self.change(|state| {
            for stream in state.streams.drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
    }

    /// Removes limits, delays and damage, and resets counts.
    pub fn reset(&self) {
        self.change(|state| {
            (state.passed, state.limit, state.speed, state.delay, state.damage) = Default::default();
        });
    }

    /// Bytes passed since the last [`Self::reset`].
    pub fn passed(&self, direction: Direction) -> u64 {
        self.shared.lock().passed[direction as usize]
    }

    /// Waits until a direction has reached its limit, that is until a transfer is stopped.
    pub fn wait_until_stopped(&self, direction: Direction) -> Result<()> {
        wait_for("the stream to reach the proxy's limit", Duration::from_secs(60), || {
            let state = self.shared.lock();
            let index = direction as usize;
            Ok(state.limit[index].filter(|&limit| state.passed[index] >= limit).map(drop))
        })
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.lock());
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until bytes may pass. Returns how many of `bytes` may; alters the one to alter.
    fn permit(&self, direction: Direction, bytes: &mut [u8]) -> usize {
        let index = direction as usize;
        let mut state = self.lock();
        loop {
            let left = state.limit[index].map_or(u64::MAX, |limit| limit.saturating_sub(state.passed[index]));
            if left > 0 {
                let granted = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                if let Some((at, bits)) = state.damage[index]
                    && let Some(ahead) = at.checked_sub(state.passed[index])
                    && ahead < granted as u64
                {
                    bytes[ahead as usize] ^= bits;
                }
                state.passed[index] += granted as u64;
                return granted;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn relay(shared: &Arc<Shared>, client: &TcpStream, builder: &TcpStream) -> Result<()> {
    for stream in [client, builder] {
        // Small buffers: the system's defaults would accept megabytes from a sender that should be stopped.
        set_socket_recv_buffer_size(stream, 64 << 10)?;
    }
    shared.lock().streams.extend([client.try_clone()?, builder.try_clone()?]);
    for (direction, from, to) in [(Direction::ToBuilder, client, builder), (Direction::ToClient, builder, client)] {
        let (shared, from, to) = (Arc::clone(shared), from.try_clone()?, to.try_clone()?);
        to.set_nodelay(true)?;
        thread::spawn(move || pass(&shared, direction, from, to));
    }
    Ok(())
}

/// Copies one direction. Does not read while it waits for a permit, which stops the sender.
fn pass(shared: &Shared, direction: Direction, mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(count) => count,
            Err(_) => {
                let _ = to.shutdown(Shutdown::Both);
                return;
            }
        };
        if count == 0 {
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
        let mut rest = &mut buffer[..count];
        while !rest.is_empty() {
            let granted = shared.permit(direction, rest);
            let (now, later) = rest.split_at_mut(granted);
            rest = later;
            let (speed, delay) = {
                let state = shared.lock();
                (state.speed[direction as usize], state.delay[direction as usize])
            };
            let at_speed = speed.map_or(0.0, |speed| now.len() as f64 / f64::from(speed));
            thread::sleep(delay + Duration::from_secs_f64(at_speed));
            if to.write_all(now).is_err() {
                let _ = from.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}
