//! File descriptors: the run's need against this process's limit.
//!
//! A run needs each of them. With too few, the last part to open one fails at the start, or a peer
//! is refused its connection. So descriptors are a sum like any other.

use crate::catalog::stage_needs::Needs;
use crate::check::refs::{Links, PortLinks};
use crate::choices::Provider;
use crate::diag::sink::Sink;
use crate::diag::source::Span;
use crate::ids::StageId;
use crate::machine::Machine;
use crate::read::raw::{RawDevice, RawPlan};
use crate::read::raw_port::RawPort;
use crate::sums::sum::{Limit, Sum};

/// The run's own: the watcher of device events, the stops of connecting and watching, and the
/// measurement of a wake-up's cost before the lcores start.
const OF_RUN: u64 = 10;
/// A device: its command file and its asynchronous events. librdmacm opens a kernel device once
/// more, for connections by address.
const OF_DEVICE: u64 = 2;
/// The network of a device with an address: its socket, its name among the processes that share the
/// address and one to spare for them, the two sets that its thread waits for, and two bells.
const OF_NETWORK: u64 = 7;
/// Up to 31 processes may share a device's address: a channel to each, two from each and two more,
/// and one for a request that is passed on.
const OF_SHARING: u64 = 31 + 64 + 1;
/// The peers of a device that have a socket of their own.
const OF_PEERS: u64 = 16;
/// An lcore: its doorbell, its completion channel, the files that it sleeps on, and the flag that
/// ends its connections.
const OF_LCORE: u64 = 5;
/// A port with one connection by address: its listener, and its mailbox.
const OF_ADDRESS: u64 = 2;
/// The same on a device's network: the name of its service, and a socket that asks for the path's
/// MTU.
const OF_SERVICE: u64 = 2;
/// The host of a port with many: its listener, its wake set, and the channels from lcore and
/// listener.
const OF_HOST: u64 = 4;

/// A part of the process that opens descriptors beside the plan's run: listeners, and their clients
/// ([`Loader::opens`](crate::Loader::opens)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpensBeside {
    /// Its name in the sum.
    pub what: &'static str,
    /// The section of the plan that asks for it; `None`: no section does.
    pub section: Option<&'static str>,
    /// The most file descriptors that it has open at once.
    pub descriptors: u64,
}

impl OpensBeside {
    /// The place in the plan that asks for it; `None`: no section does.
    fn place(&self, raw: &RawPlan, sections: &[&'static str]) -> Option<Span> {
        let Some(section) = self.section else { return Some(Span::new(0, 0..0)) };
        let place = sections.iter().position(|known| *known == section)?;
        Some(raw.sections.get(place)?.as_ref()?.0)
    }
}

/// All parts that the plan asks for, with their places.
pub(crate) fn beside(opens: &[OpensBeside], raw: &RawPlan, sections: &[&'static str]) -> Vec<(OpensBeside, Span)> {
    opens.iter().filter_map(|one| Some((*one, one.place(raw, sections)?))).collect()
}

pub(crate) fn check(
    raw: &RawPlan,
    links: &Links<'_>,
    needs: &[(StageId, Needs)],
    beside: &[(OpensBeside, Span)],
    machine: &Machine,
    sink: &mut Sink,
) -> Sum {
    let mut sum = Sum::new("file descriptors", "descriptors open at once", sink);
    let top = Span::new(0, 0..0);
    let mut add = |what: String, how: &str, value: u64, at: Span| sum.add(what, how, value, at);
    add("open already".to_owned(), "", machine.descriptors_open, top);
    add("the run's own".to_owned(), "", OF_RUN, top);
    for (one, at) in beside {
        add(one.what.to_owned(), "", one.descriptors, *at);
    }
    for (index, device) in raw.devices.iter().enumerate() {
        let mut own = |how, value, at| add(format!("device.{}", device.head.name), how, value, at);
        own("", OF_DEVICE, device.head.span);
        let is_here = |linked: &PortLinks| linked.device.is_some_and(|id| id.index() == index);
        let mut ports = raw.ports.iter().zip(&links.ports);
        if !is_soft(device) && ports.any(|(port, linked)| is_here(linked) && port.is_by_address()) {
            own("connections by address", OF_DEVICE, device.head.span);
        }
        if let Some(address) = &device.address {
            own("its network", OF_NETWORK, address.span);
            own("peers on its network", OF_PEERS, address.span);
            own("processes with its address", OF_SHARING, address.span);
        }
    }
    for lcore in &raw.lcores {
        add(format!("lcore.{}", lcore.head.name), "", OF_LCORE, lcore.head.span);
    }
    let mut greediest = (0, top);
    for (port, linked) in raw.ports.iter().zip(&links.ports) {
        let device = linked.device.map(|device| &raw.devices[device.index()]);
        let is_soft = device.is_some_and(is_soft);
        let (hosts, connections, how) = of_port(port, is_soft);
        let (name, at) = (&port.head.name, port.many().map_or(port.head.span, |many| many.span));
        add(format!("port.{name}"), "", hosts, port.head.span);
        let has_address = device.is_some_and(|device| device.address.is_some());
        let service = if hosts > 0 && has_address { OF_SERVICE } else { 0 };
        // A socket joins each group, unless no network is under the device.
        let groups = if has_address || !is_soft { port.join.len() as u64 } else { 0 };
        add(format!("port.{name}"), "on the network", service + groups, port.head.span);
        add(format!("connections of port.{name}"), &how, connections, at);
        greediest = greediest.max((connections, at));
    }
    for (id, needs) in needs {
        let head = &raw.stages[id.index()].head;
        for (what, descriptors) in &needs.descriptors {
            add(format!("stage.{}", head.name), what, *descriptors, head.span);
        }
    }
    sum.limit = machine.descriptors_max.map_or(Limit::None, Limit::Machine);
    if let Some(limit) = machine.descriptors_max.filter(|_| !sum.holds()) {
        refuse(&sum, limit, greediest.1, sink);
    }
    sum
}

/// Refuses a run that needs more than the limit; `most` is the place of the port with the most
/// connections.
fn refuse(sum: &Sum, limit: u64, most: Span, sink: &mut Sink) {
    let needed = sum.needed;
    let message = format!("the run needs {needed} file descriptors, and this process may open {limit}");
    sink.error("too-few-descriptors", most, message)
        .label("the most")
        .note(format!("what they are for:\n{}", sum.table()))
        .help(format!(
            "raise the limit to {needed} (`ulimit -n {needed}`; LimitNOFILE={needed} in the systemd unit; \
             `--ulimit nofile={needed}` of a container), or take fewer connections"
        ));
}

fn is_soft(device: &RawDevice) -> bool {
    device.provider.as_ref().is_some_and(|provider| provider.value == Provider::Soft)
}

/// A port's own descriptors, those of its connections, and the computation in words. A connection
/// has an event channel on a kernel device. On the software RNIC it has two bells, one for each
/// end, and either end may be the last to release them.
fn of_port(port: &RawPort, is_soft: bool) -> (u64, u64, String) {
    let each = if is_soft { 2 } else { 1 };
    match port.many() {
        Some(many) => (OF_HOST, u64::from(many.value) * each, format!("{} x {each}", many.value)),
        None if port.is_by_address() => {
            // A replacement connection exists before the lost one is gone.
            let connections = 1 + u64::from(port.reconnects());
            (OF_ADDRESS, connections * each, format!("{connections} x {each}"))
        }
        None => (0, 0, String::new()),
    }
}
