//! Who may connect a queue: whoever's private data is in order, and whose commands there is room
//! for. Who the host is it says later, by the Connect command.

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
/// Ports that share a listener, at most: the tag of a connection says which has it.
const PLACES_MAX: usize = 1 << 16;

/// The acceptor of queues.
struct Queues {
    entries_max: u16,
    commands_max: u32,
    queues_max: u16,
    /// Commands that the hosts of each port may have under way.
    commands: Vec<u32>,
}

pub(crate) fn register(registry: &mut Registry, _: &Arc<Shared>) {
    registry.acceptor("nvme-queues", |context| {
        let section = context.plan().section(SECTION).ok_or("the app registers the section [nvme]")?;
        let settings = Settings::read(section)?;
        Ok(Box::new(Queues {
            entries_max: settings.entries_max.max(ADMIN_ENTRIES_MAX),
            commands_max: settings.commands_max,
            queues_max: settings.queues_max,
            commands: Vec::new(),
        }))
    });
}

impl Queues {
    /// The request, with the port that takes it: the one with the fewest commands.
    fn admit(&mut self, request: &ConnectionRequest<'_>) -> Result<(Request, usize), Reject> {
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
        self.commands.resize(request.places.len().min(PLACES_MAX), 0);
        let commands = |place: usize| self.commands.get(place).copied().unwrap_or(u32::MAX);
        let has_room = |place: &usize| {
            let at = &request.places[*place];
            at.device == request.device
                && at.connections < at.connections_max
                && commands(*place).saturating_add(entries.into()) <= self.commands_max
        };
        let places = (0..request.places.len()).filter(has_room);
        let place = places.min_by_key(|place| commands(*place)).ok_or(Reject::NoResources)?;
        Ok((asked, place))
    }
}

impl Acceptor for Queues {
    fn decide(&mut self, request: &ConnectionRequest<'_>) -> Answer {
        match self.admit(request) {
            Ok((asked, place)) => {
                let entries = asked.send_depth_less_one + 1;
                self.commands[place] += u32::from(entries);
                let tag = (place as u64) << 32 | u64::from(entries);
                let answer = Answer::accept().tag(tag).place(place);
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
        if let Some(commands) = self.commands.get_mut((tag >> 32) as usize) {
            *commands -= tag as u32;
        }
    }
}
