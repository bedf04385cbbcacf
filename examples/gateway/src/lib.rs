//! The stages of a gateway: orders arrive at an ordinary socket and leave by a queue pair.
#![forbid(unsafe_code)]

pub mod message;

use std::io::Write;
use std::net::{SocketAddrV4, UdpSocket};
use std::sync::{Arc, OnceLock};

use message::Message;
use serde::Deserialize;
use verbline::engine::Opening;
use verbline::prelude::*;

const MARKET: OutId = OutId(0);
const FILL: OutId = OutId(0);
const MALFORMED: DropReason = DropReason::Stage(0);
const TOO_LARGE: DropReason = DropReason::Stage(1);

/// `[gateway]` in the plan.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    listen: String,
    quantity_max: u32,
}

impl Keys for Settings {
    const KEYS: &'static [AppKey] = &[
        AppKey::text("listen", "IPv4:PORT", "where clients send orders, by UDP"),
        AppKey::integer("quantity_max", 1..=1_000_000, "the greatest order that is let through").or(1_000),
    ];
}

/// The clients' socket. The gate opens it and answers by it; the app's thread receives from it.
pub type Socket = Arc<OnceLock<UdpSocket>>;

/// Passes orders on to the market, and tells clients what became of them.
struct Gate {
    socket: UdpSocket,
    quantity_max: u32,
    orders: Counter,
    fills: Counter,
}

impl Gate {
    /// One system call an answer: clients are ordinary sockets. An answer to a full socket is lost,
    /// as with all UDP.
    fn answer(&self, message: Message, word: &str) {
        let mut text = [0_u8; 32];
        let left = {
            let mut rest = &mut text[..];
            let _ = write!(rest, "{} {word}", message.order);
            rest.len()
        };
        let _ = self.socket.send_to(&text[..text.len() - left], message.client);
    }
}

impl Stage for Gate {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for packet in input.drain_front(input.len()) {
            // Only packets that a port has received have a timestamp.
            let is_injected = packet.timestamp() == 0;
            match Message::of_bytes(packet.data()) {
                None => out.drop(packet, MALFORMED),
                Some(fill) if !is_injected => {
                    self.fills.add(1);
                    self.answer(fill, if fill.is_filled { "filled" } else { "rejected" });
                }
                Some(order) if order.quantity > self.quantity_max => {
                    self.answer(order, "too large");
                    out.drop(packet, TOO_LARGE);
                }
                Some(_) => {
                    self.orders.add(1);
                    out.send(MARKET, packet);
                }
            }
        }
    }
}

/// Fills every order, in the packet that it came in.
struct Exchange;

impl Stage for Exchange {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for mut packet in input.drain_front(input.len()) {
            match Message::of_bytes(packet.data()) {
                None => out.drop(packet, MALFORMED),
                Some(order) => {
                    packet.data_mut().copy_from_slice(&Message { is_filled: true, ..order }.to_bytes());
                    out.send(FILL, packet);
                }
            }
        }
    }
}

/// Registers the stages with their constructors. The gate puts the socket that it opens into
/// `shared`.
pub fn register(registry: &mut Registry, shared: &Socket) {
    registry.section_of::<Settings>("gateway", "where orders come from, and which are let through");
    let spec = StageSpec {
        outputs: &["market"],
        drops: &["malformed", "too_large"],
        summary: "lets orders through to the market, and answers clients",
        ..StageSpec::default()
    };
    let describe = |stage: &StageContext<'_>| {
        stage.no_params()?;
        let section = stage.raw_section("gateway")?;
        let settings: Settings = section.read()?;
        let listen: SocketAddrV4 =
            settings.listen.parse().map_err(|error| section.refuse("listen", format!("no address: {error}")))?;
        Ok((listen, settings.quantity_max, stage.counter("orders"), stage.counter("fills")))
    };
    let shared = Arc::clone(shared);
    registry.opening_stage("gate", spec, describe, move |described, _: &Opening<'_>| {
        let (listen, quantity_max, orders, fills) = described;
        let socket = UdpSocket::bind(listen).map_err(|error| format!("{listen}: {error}"))?;
        socket.set_nonblocking(true)?;
        let _ = shared.set(socket.try_clone()?);
        Ok(Box::new(Gate { socket, quantity_max, orders, fills }))
    });

    let spec = StageSpec {
        outputs: &["fill"],
        drops: &["malformed"],
        summary: "fills every order",
        ..StageSpec::default()
    };
    registry.stage("exchange", spec, |_| Ok(Box::new(Exchange)));
}
