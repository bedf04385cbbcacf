//! Admission of queues: the host's private data must be in order, its commands must fit, and its
//! address must stay within its share of connections and commands. The host names itself only
//! later, by the Connect command.

use std::net::IpAddr;
use std::sync::Arc;

use verbline::engine::{Acceptor, Answer, ConnectionRequest};
use verbline::prelude::*;
use verbline_nvme::cm::{self, Reject, Request};

use crate::settings::{SECTION, Settings};
use crate::shared::Shared;

/// The most entries of an admin queue; its size is no setting.
const ADMIN_ENTRIES_MAX: u16 = 32;
/// The fewest entries of a queue.
const ENTRIES_MIN: u16 = 2;

/// The acceptor of queues.
struct Queues {
    entries_max: u16,
    commands_max: u32,
    queues_max: u16,
    address_connections_max: Option<usize>,
    address_commands_max: Option<u32>,
    /// The admissions of each port.
    shared: Arc<Shared>,
}

pub(crate) fn register(registry: &mut Registry, shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    registry.acceptor("nvme-queues", move |context| {
        let section = context.plan().section(SECTION).ok_or("the app registers the section [nvme]")?;
        let settings = Settings::read(section)?;
        Ok(Box::new(Queues {
            entries_max: settings.entries_max,
            commands_max: settings.commands_max,
            queues_max: settings.queues_max,
            address_connections_max: settings.address_connections_max,
            address_commands_max: settings.address_commands_max,
            shared: Arc::clone(&shared),
        }))
    });
}

impl Queues {
    /// Returns the request, and the port that takes it: the one with the fewest commands.
    fn admit(&self, request: &ConnectionRequest<'_>) -> Result<(Request, usize), Reject> {
        let asked = Request::read(request.private_data)?;
        if asked.qid > self.queues_max {
            return Err(Reject::QueueId);
        }
        let entries = asked.send_depth_less_one.checked_add(1).ok_or(Reject::SendDepth)?;
        let most = if asked.qid == 0 { ADMIN_ENTRIES_MAX } else { self.entries_max };
        if entries < ENTRIES_MIN || entries > most {
            return Err(Reject::SendDepth);
        }
        if asked.recv_depth < entries - 1 {
            return Err(Reject::RecvDepth);
        }
        let address = request.peer.ip().to_canonical();
        self.check_share(address, entries, request)?;
        let admitted = |place: usize| self.shared.admissions.at(request.places[place].port);
        let has_room = |place: &usize| {
            let (at, admitted) = (&request.places[*place], admitted(*place));
            at.device == request.device
                && at.connections < at.connections_max
                // An ended queue keeps its place until its last operation is done.
                && admitted.queues < at.connections_max
                && admitted.commands.saturating_add(entries.into()) <= self.commands_max
        };
        let places = (0..request.places.len()).filter(has_room);
        let place = places.min_by_key(|place| admitted(*place).commands).ok_or(Reject::NoResources)?;
        Ok((asked, place))
    }

    /// Refuses an address beyond its share: half of all connections and half of all commands, but
    /// no less than one controller may have. Ended connections count until their last operation is
    /// done.
    fn check_share(&self, address: IpAddr, entries: u16, request: &ConnectionRequest<'_>) -> Result<(), Reject> {
        let is_here = |port: &str| request.places.iter().any(|place| place.port == port);
        let own = self.shared.admissions.of(address, is_here);
        let share = (request.connections_max() / 2).max(usize::from(self.queues_max) + 1);
        if own.queues >= self.address_connections_max.unwrap_or(share) {
            let own = own.queues;
            tracing::info!(%address, own, "an address has as many connections as it may: nvme.address_connections_max");
            return Err(Reject::NoResources);
        }
        let all = self.commands_max.saturating_mul(request.places.len() as u32);
        let controller = u32::from(ADMIN_ENTRIES_MAX) + u32::from(self.queues_max) * u32::from(self.entries_max);
        let share = self.address_commands_max.unwrap_or((all / 2).max(controller));
        if own.commands.saturating_add(entries.into()) > share {
            let own = own.commands;
            tracing::info!(%address, own, "an address has as many commands as it may: nvme.address_commands_max");
            return Err(Reject::NoResources);
        }
        Ok(())
    }
}

impl Acceptor for Queues {
    fn decide(&mut self, request: &ConnectionRequest<'_>) -> Answer {
        match self.admit(request) {
            Ok((asked, place)) => {
                let (port, entries) = (request.places[place].port, asked.send_depth_less_one + 1);
                let address = request.peer.ip().to_canonical();
                let tag = self.shared.admissions.admit(port, address, entries);
                let answer = Answer::accept().tag(tag).place(place);
                // 32 of the 196 bytes that private data may have.
                answer.private_data(&cm::acceptance(asked.recv_depth)).unwrap_or_else(|_| Answer::reject())
            }
            Err(reject) => {
                tracing::info!(peer = %request.peer, %reject, "a queue is rejected");
                Answer::reject().private_data(&reject.to_bytes()).unwrap_or_else(|_| Answer::reject())
            }
        }
    }

    fn ended(&mut self, tag: u64) {
        self.shared.admissions.disconnected(tag);
    }
}
