//! Who may connect a queue: a host whose private data is in order, for whose commands there is
//! room, and whose address has not more connections than its share. Who the host is it says later,
//! by the Connect command.

use std::net::IpAddr;
use std::sync::Arc;

use verbline::engine::{Acceptor, Answer, ConnectionRequest};
use verbline::prelude::*;
use verbline_nvme::cm::{self, Reject, Request};

use crate::settings::{SECTION, Settings};
use crate::shared::Shared;

/// Entries of an admin queue, at most; its size is no setting.
const ADMIN_ENTRIES_MAX: u16 = 32;
/// The least that a queue has.
const ENTRIES_MIN: u16 = 2;

/// The acceptor of queues.
struct Queues {
    entries_max: u16,
    commands_max: u32,
    queues_max: u16,
    address_connections_max: Option<usize>,
    /// The connections that were let in and have not ended, by their tags.
    admitted: Vec<Option<Admitted>>,
}

/// A connection that was let in, until it has ended.
struct Admitted {
    address: IpAddr,
    /// The port that has it, by its place among those that share the listener.
    place: usize,
    entries: u16,
}

pub(crate) fn register(registry: &mut Registry, _: &Arc<Shared>) {
    registry.acceptor("nvme-queues", |context| {
        let section = context.plan().section(SECTION).ok_or("the app registers the section [nvme]")?;
        let settings = Settings::read(section)?;
        Ok(Box::new(Queues {
            entries_max: settings.entries_max.max(ADMIN_ENTRIES_MAX),
            commands_max: settings.commands_max,
            queues_max: settings.queues_max,
            address_connections_max: settings.address_connections_max,
            admitted: Vec::new(),
        }))
    });
}

impl Queues {
    /// The request, and the connection that it becomes, at the port with the fewest commands.
    fn admit(&self, request: &ConnectionRequest<'_>) -> Result<(Request, Admitted), Reject> {
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
        self.check_share(address, request.connections_max())?;
        let has_room = |place: &usize| {
            let at = &request.places[*place];
            at.device == request.device
                && at.connections < at.connections_max
                && self.commands_at(*place).saturating_add(entries.into()) <= self.commands_max
        };
        let places = (0..request.places.len()).filter(has_room);
        let place = places.min_by_key(|place| self.commands_at(*place)).ok_or(Reject::NoResources)?;
        Ok((asked, Admitted { address, place, entries }))
    }

    /// One address can't take all connections.
    fn check_share(&self, address: IpAddr, connections_max: usize) -> Result<(), Reject> {
        let share = (connections_max / 2).max(usize::from(self.queues_max) + 1);
        let share = self.address_connections_max.unwrap_or(share);
        let own = self.admitted.iter().flatten().filter(|other| other.address == address).count();
        if own < share {
            return Ok(());
        }
        tracing::info!(%address, own, "an address has as many connections as it may: nvme.address_connections_max");
        Err(Reject::NoResources)
    }

    /// Commands that the hosts of a port may have under way.
    fn commands_at(&self, place: usize) -> u32 {
        let at_it = self.admitted.iter().flatten().filter(|other| other.place == place);
        at_it.map(|other| u32::from(other.entries)).sum()
    }

    /// Keeps a connection, and gives its tag.
    fn keep(&mut self, admitted: Admitted) -> u64 {
        let free = self.admitted.iter().position(Option::is_none);
        let tag = free.unwrap_or_else(|| {
            self.admitted.push(None);
            self.admitted.len() - 1
        });
        self.admitted[tag] = Some(admitted);
        tag as u64
    }
}

impl Acceptor for Queues {
    fn decide(&mut self, request: &ConnectionRequest<'_>) -> Answer {
        match self.admit(request) {
            Ok((asked, admitted)) => {
                let place = admitted.place;
                let answer = Answer::accept().tag(self.keep(admitted)).place(place);
                // 32 bytes of the 196 that there is room for.
                answer.private_data(&cm::acceptance(asked.recv_depth)).unwrap_or_else(|_| Answer::reject())
            }
            Err(reject) => {
                tracing::info!(peer = %request.peer, %reject, "a queue is rejected");
                Answer::reject().private_data(&reject.to_bytes()).unwrap_or_else(|_| Answer::reject())
            }
        }
    }

    fn ended(&mut self, tag: u64) {
        if let Some(admitted) = self.admitted.get_mut(tag as usize) {
            *admitted = None;
        }
    }
}
