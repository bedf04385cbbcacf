//! The command: `cargo run -- run plan.toml`, then `echo 7 100 | nc -u -W1 127.0.0.1 4999`.
//!
//! A thread of the app's own receives from clients and hands their orders to the lcore. The word
//! `halt` ends the run in order.
#![forbid(unsafe_code)]

use std::net::{SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use gateway::Socket;
use gateway::message::Message;
use verbline::engine::Refused;
use verbline::prelude::*;

/// The pause between two looks at an empty socket.
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Default)]
struct Command {
    socket: Socket,
}

impl App for Command {
    fn name(&self) -> &'static str {
        "gateway"
    }

    fn about(&self) -> &'static str {
        "Takes orders by UDP, and hands them to a market over a queue pair"
    }

    fn register(&self, registry: &mut Registry) {
        gateway::register(registry, &self.socket);
    }

    fn started(&self, _: &Plan, running: &Running) -> Result<(), String> {
        let socket = self.socket.get().ok_or("the plan has no stage of the kind `gate`")?;
        let socket = socket.try_clone().map_err(|error| error.to_string())?;
        let orders = running.injector("orders").map_err(|error| error.to_string())?;
        let (observer, interrupter) = (running.observer(), running.interrupter());
        thread::spawn(move || listen(&socket, &orders, &observer, &interrupter));
        Ok(())
    }

    fn live(&self, report: &Report) -> String {
        let fills = report.stage("gate").and_then(|gate| gate.counter("fills"));
        format!("{} filled", fills.unwrap_or(0))
    }
}

/// Takes datagrams of clients until the run stops.
fn listen(socket: &UdpSocket, orders: &Injector, observer: &Observer, interrupter: &Interrupter) {
    let mut bytes = [0; 64];
    while !observer.is_stopping() {
        // The lcore answers by the same socket, so the socket never blocks.
        let Ok((len, SocketAddr::V4(client))) = socket.recv_from(&mut bytes) else {
            thread::sleep(PAUSE);
            continue;
        };
        let text = std::str::from_utf8(&bytes[..len]).unwrap_or_default();
        if text.trim() == "halt" {
            return interrupter.interrupt();
        }
        let Some(order) = Message::asked(client, text) else {
            let _ = socket.send_to(b"an order is: NUMBER QUANTITY", client);
            continue;
        };
        match orders.try_push(&order.to_bytes()) {
            Ok(()) => {}
            Err(Refused::Stopped) => return,
            Err(_) => _ = socket.send_to(format!("{} busy", order.order).as_bytes(), client),
        }
    }
}

fn main() -> ExitCode {
    verbline::cli::main(&Command::default())
}
