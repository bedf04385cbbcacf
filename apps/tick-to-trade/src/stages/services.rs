//! The exchange's answers to requests: messages sent again, and snapshots.

use verbline::prelude::*;

use super::channels::{Drops, NO_ROOM, NOT_SERVED, ON_PURPOSE_ANSWER};
use super::settings::port_of_output;
use crate::generator::Generator;
use crate::mold;
use crate::recovery::{Answered, REQUEST_LEN_BYTES, Services, ServicesCounts, ServicesSpec};

/// The exchange's outputs for answers, after its channels and its reports.
const AGAIN: OutId = OutId(3);
const SNAPSHOT: OutId = OutId(4);

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// For lost messages.
    Again,
    /// For a part of a snapshot.
    Snapshot,
}

/// Both services, and their ports: answers leave by the port that requests come in by.
pub(super) struct Desks {
    services: Services,
    again_port: Option<u16>,
    snapshot_port: Option<u16>,
}

impl Desks {
    /// Allocates all memory for serving.
    pub(super) fn new(stage: &StageContext<'_>, spec: ServicesSpec) -> Desks {
        Desks {
            services: Services::new(spec),
            again_port: port_of_output(stage, "again"),
            snapshot_port: port_of_output(stage, "snapshots"),
        }
    }

    /// The kind of a packet's request; `None` if it did not come by a port for requests.
    #[inline]
    pub(super) fn asked(&self, packet: &Packet) -> Option<Asked> {
        match Some(packet.port()) {
            port if port == self.again_port => Some(Asked::Again),
            port if port == self.snapshot_port => Some(Asked::Snapshot),
            _ => None,
        }
    }

    pub(super) fn counts(&self) -> ServicesCounts {
        *self.services.counts()
    }

    /// Keeps the messages of an outgoing frame.
    #[inline]
    pub(super) fn keep(&mut self, frame: &[u8]) {
        // The exchange wrote the frame itself, so it is valid.
        if let Ok(frame) = mold::Packet::parse(frame) {
            self.services.keep(&frame);
        }
    }

    /// Answers a request, in the request's packet.
    pub(super) fn serve(
        &mut self,
        asked: Asked,
        mut packet: Packet,
        generator: &Generator,
        drops: &mut Drops,
        out: &mut Outputs<'_>,
    ) {
        // One byte more than a request, so that longer packets are seen to be none.
        let mut request = [0; REQUEST_LEN_BYTES + 1];
        let len_bytes = packet.len().min(request.len());
        request[..len_bytes].copy_from_slice(&packet.data()[..len_bytes]);
        // The answer goes to the client's connection.
        let asker = packet.connection();
        packet.reset();
        packet.set_connection(asker);
        let has_room = packet.set_len(packet.capacity());
        debug_assert!(has_room, "a packet holds its capacity");
        let (request, answer) = (&request[..len_bytes], packet.data_mut());
        let answered = match asked {
            Asked::Again => self.services.send_again(request, generator, answer),
            Asked::Snapshot => self.services.send_snapshot(asker, request, generator, answer),
        };
        match (asked, answered) {
            (_, Answered::Nothing) => out.drop(packet, NOT_SERVED),
            (_, Answered::Bytes(len_bytes)) if !packet.set_len(len_bytes) => out.drop(packet, NO_ROOM),
            (Asked::Again, _) if drops.drops_answer() => out.drop(packet, ON_PURPOSE_ANSWER),
            // An answer refused for want of room is counted there, and requested again.
            (Asked::Again, _) => _ = out.send(AGAIN, packet),
            (Asked::Snapshot, _) => _ = out.send(SNAPSHOT, packet),
        }
    }
}
