//! The peers: how to run each, and how to read its output.

pub(crate) mod counted;
pub(crate) mod dpdk_test;
pub(crate) mod fabric;
pub(crate) mod fio;
pub(crate) mod rivals;
pub(crate) mod testpmd;
pub(crate) mod ucx;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::error::RunError;
use crate::process::{Line, Running};

/// The longest run of a peer.
const LIMIT: Duration = Duration::from_secs(90);

/// Runs a server and, once it listens on its port, the client; returns the client's output.
fn serve(server: &Line, client: &Line, port: u16) -> Result<String, RunError> {
    let mut serving = server.start()?;
    let deadline = Instant::now() + Duration::from_secs(20);
    while !listens(port) && !serving.has_ended() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let printed = client.run(LIMIT);
    let served: Result<String, RunError> = if printed.is_ok() { serving.finish(LIMIT) } else { Ok(String::new()) };
    let printed = printed?;
    served?;
    Ok(printed)
}

/// A TCP port that is free now.
fn free_port() -> u16 {
    let bound = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    bound.map_or(13_337, |address| address.port())
}

/// Whether a program listens on this TCP port. Asks the kernel (proc(5), /proc/net/tcp: state 0A),
/// as a connection would be taken for the one that the server waits for.
fn listens(port: u16) -> bool {
    let listening = |table: &str| {
        std::fs::read_to_string(table).is_ok_and(|text| {
            text.lines().skip(1).any(|line| {
                let mut fields = line.split_whitespace().skip(1);
                let local = fields.next().and_then(|address| address.rsplit(':').next().map(str::to_owned));
                let state = fields.nth(1);
                state == Some("0A") && local.and_then(|port| u16::from_str_radix(&port, 16).ok()) == Some(port)
            })
        })
    };
    listening("/proc/net/tcp") || listening("/proc/net/tcp6")
}

/// Waits until a program has printed this text; `false` if it ended, or took too long.
fn wait_for(running: &mut Running, text: &str, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while !running.has_printed(text) {
        if running.has_ended() || Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_port_is_seen_and_a_free_one_is_not() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listens(port));
        drop(listener);
        assert!(!listens(port));
    }
}
