//! The shutdown of a controller: all written data becomes durable, then its host is answered.
//!
//! The Property Set that begins it is a command in flight, which asks the store of one namespace
//! after the other to flush.

use verbline::mem::Packet;
use verbline::prelude::*;
use verbline_nvme::identify::ControllerType;
use verbline_nvme::{Command, Status};
use verbline_store::{Fault, Op};

use crate::commands::{Answer, Io, Pending, Work};
use crate::namespace_table::Use;
use crate::stage::Target;

impl Target {
    /// Begins with the first namespace. A discovery controller has none: its host may be anybody.
    pub(crate) fn shut_down(&mut self, at: u16, command: Command, capsule: Packet, out: &mut Outputs<'_>) {
        let controller = self.queues.get(at).and_then(|queue| queue.controller.as_ref());
        let has_blocks = controller.is_some_and(|controller| controller.kind == ControllerType::Io);
        match has_blocks.then(|| self.next_cached(0)).flatten() {
            Some(of) => {
                let work = Work::Store(Io::new(of, (0, 0)));
                if let Some(place) = self.hold(Pending::new(at, command, capsule, work), out) {
                    self.advance(place, out);
                }
            }
            None => {
                self.is_shut_down(at);
                self.reply(at, &command, capsule, (0, Status::SUCCESS), None, out);
            }
        }
    }

    /// Goes on with the next namespace after a flush. After a fault the shutdown stays incomplete,
    /// and the host is told.
    pub(crate) fn flushed_for_shutdown(
        &mut self,
        place: u32,
        pending: Pending,
        (of, result): (Use, Result<(), Fault>),
        out: &mut Outputs<'_>,
    ) {
        let nsid = self.spaces.get(&of).nsid;
        let io = Io::new(of, (0, 0));
        if let Err(fault) = result {
            let status = self.failed_by(fault, &io, Op::Flush);
            tracing::error!(nsid, "a controller is not shut down, since its namespace can't be flushed: {fault}");
            return self.answer(place, Pending { work: Work::Storing(io), ..pending }, Answer::of(status), out);
        }
        self.spaces.give_back(io.of);
        match self.next_cached(nsid) {
            Some(of) => {
                let work = Work::Store(Io::new(of, (0, 0)));
                self.advance_with(place, Pending { work, ..pending }, out);
            }
            None => {
                self.is_shut_down(pending.queue);
                self.answer(place, pending, Answer::of(Status::SUCCESS), out);
            }
        }
    }

    fn is_shut_down(&self, at: u16) {
        let controller = self.queues.get(at).and_then(|queue| queue.controller.as_ref());
        controller.inspect(|controller| controller.complete_shutdown());
    }

    /// The next namespace by number whose store has a volatile cache.
    fn next_cached(&mut self, after: u32) -> Option<Use> {
        let cached = self.spaces.iter().filter(|space| space.nsid > after && space.store.geometry().volatile_cache);
        let next = cached.map(|space| space.nsid).min()?;
        self.spaces.begin_use(next)
    }
}
