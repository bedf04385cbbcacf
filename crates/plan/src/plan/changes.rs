//! A plan that is read again during its run: the changed attributes of its ports' queue pairs, and
//! how each takes effect.
//!
//! ibv_modify_qp(3) limits the changes of a connected queue pair. It takes some attributes while it
//! sends (RTS to RTS), most only while its send queue is drained (SQD), and the path MTU in neither
//! state. A change that can't be made is refused at its key, with the whole plan.

use std::fmt;

use crate::choices::Transport;
use crate::diag::diagnostics::Diagnostics;
use crate::diag::sink::Sink;
use crate::ids::PortId;
use crate::plan::Plan;
use crate::plan::port::{Port, Retries};

/// How a port takes a new value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// While it sends: RTS to RTS, or a new address handle for datagrams.
    Sending,
    /// While its send queue is drained (SQD): further sends wait there meanwhile.
    Drained,
    /// With its next connection.
    NextConnection,
}

/// The new value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// The key.
    pub key: &'static str,
    /// The value in the running plan; `None`: that plan leaves the key out.
    pub from: Option<u32>,
    /// The new value.
    pub to: Option<u32>,
    /// How it is taken.
    pub taking: Taking,
}

/// The changes of one port's queue pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortChange {
    /// The port of the running plan.
    pub port: PortId,
    /// The changed keys, at least one.
    pub keys: Vec<KeyChange>,
}

/// Why a key can't change, and the remedy.
struct Never {
    note: &'static str,
    help: &'static str,
}

impl Never {
    /// Reports the fault at the key, or at the port's table if the key is gone.
    fn tell(self, key: &str, message: String, port: &Port, sink: &mut Sink) {
        let span = port.said.iter().find(|(said, _)| *said == key).map_or(port.span, |(_, span)| *span);
        sink.error("not-while-running", span, message).note(self.note).help(self.help);
    }
}

impl Plan {
    /// Compares this running plan with `next`: returns the changes of the queue pairs' attributes,
    /// port by port, by name. The rest of `next` is ignored.
    ///
    /// # Errors
    /// The keys that can't change during the run, each at its place in `next`.
    pub fn port_changes(&self, next: &Plan) -> Result<Vec<PortChange>, Diagnostics> {
        let mut sink = Sink::new(next.sources.clone());
        let mut changes = Vec::new();
        for port in &self.ports {
            let is_it = |other: &&Port| other.name == port.name && other.transport == port.transport;
            let Some(other) = next.ports.iter().find(is_it) else { continue };
            let keys = key_changes(port, other, &mut sink);
            if !keys.is_empty() {
                changes.push(PortChange { port: port.id, keys });
            }
        }
        if sink.has_errors() { Err(sink.finish()) } else { Ok(changes) }
    }

    /// Records a change that a port has taken.
    pub fn take(&mut self, port: PortId, change: &KeyChange) {
        let Port { retries, attributes: said, .. } = &mut self.ports[port.index()];
        let to = change.to;
        // The checks bound each value by its bits.
        let code = to.map(|value| value as u8);
        let mut retry = |set: fn(&mut Retries, u8)| retries.iter_mut().zip(code).for_each(|(all, code)| set(all, code));
        match change.key {
            "timeout" => retries.iter_mut().for_each(|all| all.timeout = code),
            "retry_cnt" => retry(|all, code| all.retry_cnt = code),
            "rnr_retry" => retry(|all, code| all.rnr_retry = code),
            "min_rnr_timer" => retry(|all, code| all.min_rnr_timer = code),
            "traffic_class" => said.traffic_class = code,
            "hop_limit" => said.hop_limit = code,
            "service_level" => said.service_level = code,
            "path_mtu" => said.path_mtu_bytes = to,
            "pkey" => said.pkey = to.map(|value| value as u16),
            "qkey" => said.qkey = to.unwrap_or(said.qkey),
            "max_rd_atomic" => said.max_rd_atomic = code,
            "max_dest_rd_atomic" => said.max_dest_rd_atomic = code,
            "rate_limit" => said.rate_limit_kbit_per_s = to,
            _ => {}
        }
    }
}

/// The keys by which two ports differ.
fn key_changes(port: &Port, other: &Port, sink: &mut Sink) -> Vec<KeyChange> {
    let pairs = values(port).into_iter().zip(values(other));
    let mut keys = Vec::new();
    for ((key, from), (_, to)) in pairs.filter(|((_, from), (_, to))| from != to) {
        match taking(key, to, port) {
            Ok(taking) => keys.push(KeyChange { key, from, to, taking }),
            Err(never) => {
                let runs_with = from.map_or_else(|| "none in its plan".to_owned(), |value| value.to_string());
                let message = format!("`{key}` of port.{} can't change now: it runs with {runs_with}", port.name);
                never.tell(key, message, other, sink);
            }
        }
    }
    if port.alternate != other.alternate {
        let message = format!("the alternate path of port.{} can't change now", port.name);
        let key = other.said.iter().map(|(key, _)| *key).find(|key| key.starts_with("alternate_")).unwrap_or_default();
        let never = Never {
            note: "the two paths change places whenever one fails, so that the other one is not the plan's to know",
            help: "write what it runs with, or start the run again",
        };
        never.tell(key, message, other, sink);
    }
    keys
}

/// The values of a port's attributes, by the names of their keys; in the same order for all ports.
fn values(port: &Port) -> [(&'static str, Option<u32>); 13] {
    let (retries, said) = (port.retries, port.attributes);
    let code = |of: fn(Retries) -> u8| retries.map(|retries| of(retries).into());
    [
        ("timeout", retries.and_then(|retries| retries.timeout).map(u32::from)),
        ("retry_cnt", code(|retries| retries.retry_cnt)),
        ("rnr_retry", code(|retries| retries.rnr_retry)),
        ("min_rnr_timer", code(|retries| retries.min_rnr_timer)),
        ("traffic_class", said.traffic_class.map(u32::from)),
        ("hop_limit", said.hop_limit.map(u32::from)),
        ("service_level", said.service_level.map(u32::from)),
        ("path_mtu", said.path_mtu_bytes),
        ("pkey", said.pkey.map(u32::from)),
        ("qkey", Some(said.qkey)),
        ("max_rd_atomic", said.max_rd_atomic.map(u32::from)),
        ("max_dest_rd_atomic", said.max_dest_rd_atomic.map(u32::from)),
        ("rate_limit", said.rate_limit_kbit_per_s),
    ]
}

/// How a port takes `key`; `to`: `None` leaves the key to the connection manager, if there is one.
fn taking(key: &str, to: Option<u32>, port: &Port) -> Result<Taking, Never> {
    let by_address = port.destination.is_by_address();
    let is_agreed = match key {
        "max_rd_atomic" | "max_dest_rd_atomic" => true,
        "timeout" | "traffic_class" => to.is_none(),
        _ => false,
    };
    let taking = match key {
        "path_mtu" => {
            return Err(Never {
                note: "a queue pair takes it on its way to RTR, and no more once it is connected",
                help: "write the value that it runs with, or start the run again",
            });
        }
        _ if by_address && (is_agreed || port.connections.is_some()) => Taking::NextConnection,
        "max_dest_rd_atomic" => {
            return Err(Never {
                note: "its peer has as many READs under way as it was told, which draining this end does not hold back",
                help: "write the value that it runs with, or start the run again",
            });
        }
        "min_rnr_timer" | "rate_limit" | "qkey" => Taking::Sending,
        "traffic_class" | "hop_limit" | "service_level" if port.transport == Transport::Ud => Taking::Sending,
        _ => Taking::Drained,
    };
    match taking {
        Taking::NextConnection if port.connections.is_none() && !port.reconnect => Err(Never {
            note: "both ends agreed on it as they were connected, and with `reconnect = false` they are not again",
            help: "write the value that it runs with, or start the run again",
        }),
        Taking::Drained if port.signature_keys > 0 => Err(Never {
            note: "a port with `signature_keys` can't drain its send queue: its device does, behind a bad block",
            help: "write the value that it runs with, or start the run again",
        }),
        taking => Ok(taking),
    }
}

impl fmt::Display for KeyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KeyChange { key, from, to, .. } = self;
        match to {
            Some(to) => write!(f, "{key} = {to}")?,
            None => write!(f, "{key} left out")?,
        }
        match from {
            Some(from) => write!(f, " (was {from})"),
            None => f.write_str(" (was left out)"),
        }
    }
}
