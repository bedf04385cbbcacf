//! The shutdown of a controller: all written data becomes durable, then its host is answered.
//!
//! The Property Set that begins it is a command in flight, which asks the store of one namespace
//! after the other to flush. Namespaces that were removed before are flushed as they leave, on each
//! lcore: it waits for that.

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
        let work = match has_blocks.then(|| self.next_cached(0)).flatten() {
            Some(of) => Work::Store(Io::new(of, (0, 0))),
            None if has_blocks && self.namespaces.are_leaving() => Work::Leaving,
            None => {
                self.is_shut_down(at);
                return self.reply(at, &command, capsule, (0, Status::SUCCESS), None, out);
            }
        };
        let is_waiting = matches!(work, Work::Leaving);
        if let Some(place) = self.hold(Pending::new(at, command, capsule, work), out) {
            self.shutdowns.extend(is_waiting.then_some(place));
            self.advance(place, out);
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
            None => self.end_shutdown(place, pending, out),
        }
    }

    /// Ends a shutdown whose namespaces are flushed, when those that leave have left.
    fn end_shutdown(&mut self, place: u32, pending: Pending, out: &mut Outputs<'_>) {
        if self.namespaces.are_leaving() {
            self.commands.put(place, Pending { work: Work::Leaving, ..pending });
            return self.shutdowns.push(place);
        }
        self.is_shut_down(pending.queue);
        self.answer(place, pending, Answer::of(Status::SUCCESS), out);
    }

    /// Goes on with shutdowns that wait for namespaces to leave. If a host has gone meanwhile, the
    /// place may be another command's.
    pub(crate) fn look_after_shutdowns(&mut self, out: &mut Outputs<'_>) {
        for _ in 0..self.shutdowns.len() {
            let place = self.shutdowns.swap_remove(0);
            match self.commands.take(place) {
                Some(pending) if matches!(pending.work, Work::Leaving) => self.end_shutdown(place, pending, out),
                Some(pending) => self.commands.put(place, pending),
                None => {}
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
