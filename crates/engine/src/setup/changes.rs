//! Changes of queue pairs for a plan that was read again, as verbs attributes.

use verbline_plan::{Destination, KeyChange, Plan, Port, PortId, Transport};
use verbline_verbs::expert::{AttrMask, QpAttr};
use verbline_verbs::{Endpoint, RtrSpec, RtsSpec};

use crate::connection::multi_port::cm_thread::CmThreadSpec;
use crate::connection::spec::{ConnectionSpec, LocalPort, SharedOptions};
use crate::control::change::{Asked, PathChange};
use crate::errors::error::Cause;
use crate::setup::attributes::pkey_index;
use crate::setup::devices::Devices;
use crate::setup::queue_pairs::{connect_options, destination};
use crate::setup::regions::read_depths;

/// The state that a run keeps to change its ports.
#[derive(Debug)]
pub(crate) struct Known {
    /// The plan, with the keys that the ports run with.
    pub(crate) plan: Plan,
    devices: Devices,
    /// The endpoints of ports without an address, by index.
    endpoints: Vec<Option<Endpoint>>,
    /// The connection options of ports with an address, by index.
    options: Vec<Option<SharedOptions>>,
}

impl Known {
    pub(crate) fn new(
        plan: &Plan,
        devices: Devices,
        endpoints: Vec<Option<Endpoint>>,
        to_connect: &[ConnectionSpec],
        cm_threads: &[CmThreadSpec],
    ) -> Known {
        let mut options = vec![None; plan.ports().len()];
        let mut keep = |port: &LocalPort| options[port.index] = Some(port.options.clone());
        to_connect.iter().for_each(|spec| keep(&spec.port));
        cm_threads.iter().for_each(|spec| keep(&spec.port));
        Known { plan: plan.clone(), devices, endpoints, options }
    }

    /// The port's lcore, and the port's index on it.
    pub(crate) fn place(&self, port: PortId) -> [usize; 2] {
        let lcore = &self.plan[self.plan[port].lcore];
        let place = lcore.ports.iter().position(|id| *id == port).expect("a port is on its lcore");
        [lcore.id.index(), place]
    }

    /// Records the keys that the queue pair and its successors have from now on.
    pub(crate) fn take(&mut self, port: PortId, keys: &[KeyChange]) {
        keys.iter().for_each(|key| self.plan.take(port, key));
        if let Some(options) = &self.options[port.index()] {
            let port = &self.plan[port];
            options.set(connect_options(&self.plan, port, &self.devices[port.device]));
        }
    }

    /// The attributes to set for the keys that a port takes in one way; `None` if there are none.
    /// `after` has the new values of all ports.
    pub(crate) fn attributes(
        &self,
        after: &Plan,
        port: PortId,
        keys: &[KeyChange],
        drains: bool,
    ) -> Result<Option<Asked>, Cause> {
        let port = &after[port];
        let (mut attr, mut mask, mut path) = (QpAttr::default(), AttrMask::NONE, PathChange::default());
        let (rtr, rts) = (RtrSpec::datagram(), RtsSpec::default());
        for KeyChange { key, to, .. } in keys {
            let code = |usual: u8| to.map_or(usual, |value| value as u8);
            match *key {
                "timeout" => (attr.timeout, mask) = (code(rts.timeout), mask | AttrMask::TIMEOUT),
                "retry_cnt" => (attr.retry_cnt, mask) = (code(rts.retry_cnt), mask | AttrMask::RETRY_CNT),
                "rnr_retry" => (attr.rnr_retry, mask) = (code(rts.rnr_retry), mask | AttrMask::RNR_RETRY),
                "min_rnr_timer" => {
                    (attr.min_rnr_timer, mask) = (code(rtr.min_rnr_timer), mask | AttrMask::MIN_RNR_TIMER);
                }
                "rate_limit" => {
                    (attr.rate_limit_kbit_per_s, mask) = (to.unwrap_or(0), mask | AttrMask::RATE_LIMIT);
                }
                "qkey" => (attr.qkey, mask) = (port.attributes.qkey, mask | AttrMask::QKEY),
                "pkey" => {
                    let index = pkey_index(after, port, &self.devices[port.device])?;
                    (attr.pkey_index, mask) = (index, mask | AttrMask::PKEY_INDEX);
                }
                "max_rd_atomic" => {
                    (attr.max_rd_atomic, mask) = (self.started(after, port)?, mask | AttrMask::MAX_QP_RD_ATOMIC);
                }
                // For datagrams these belong to the destination.
                _ if port.transport == Transport::Ud => {}
                "traffic_class" => path.traffic_class = Some(code(rtr.traffic_class)),
                "hop_limit" => path.hop_limit = Some(code(rtr.hop_limit)),
                "service_level" => path.service_level = Some(code(rtr.service_level)),
                _ => {}
            }
        }
        let is_nothing = mask.is_empty() && path == PathChange::default();
        Ok((!is_nothing).then(|| Asked::Attributes { drains, attr: Box::new(attr), mask, path }))
    }

    /// The new destination of a port's datagrams, if it differs in `after`: by its own path, or by
    /// the Q_Key of its group or of its peer.
    pub(crate) fn destination(&self, after: &Plan, port: PortId) -> Result<Option<Asked>, Cause> {
        let (before, port) = (&self.plan[port], &after[port]);
        let path = |port: &Port| {
            let said = port.attributes;
            (said.traffic_class, said.hop_limit, said.service_level)
        };
        let qkey = |plan: &Plan| match port.destination {
            Destination::Peer(peer) => plan[peer].attributes.qkey,
            _ => plan[port.id].attributes.qkey,
        };
        let is_same = path(before) == path(port) && qkey(&self.plan) == qkey(after);
        if is_same || port.transport != Transport::Ud || port.tx_depth_wr == 0 {
            return Ok(None);
        }
        let found = destination(after, &self.devices, &self.endpoints, port)?;
        Ok(found.map(|(ah, qpn, qkey)| Asked::Destination { ah, qpn, qkey }))
    }

    /// The most READs and atomics that a port of a pair has under way at once: no more than its
    /// peer serves.
    fn started(&self, after: &Plan, port: &Port) -> Result<u8, Cause> {
        let device = &self.devices[port.device];
        let most = device.attr.max_qp_init_rd_atomic;
        let started = read_depths(after, port, device).started;
        if u32::from(started) > most {
            return Err(format!("{} has {most} READs and atomics under way at most", device.context.name()).into());
        }
        let served = port.destination.peer().map(|peer| &after[peer]);
        let served = served.map_or(1, |peer| read_depths(after, peer, &self.devices[peer.device]).served);
        Ok(started.min(served))
    }
}
