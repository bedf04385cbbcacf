//! Packets of a connection that arrive before the stages know of it.

use verbline_mem::{ConnectionId, Packet};

use super::MultiPort;
use crate::ports::context::LcoreContext;
use crate::ports::rx_half::Delivery;

impl MultiPort {
    /// The stages know of a connection: its earlier packets go on to them
    /// ([`MultiPort::hand_on_early`]).
    pub(crate) fn told_of(&mut self, connection: ConnectionId) {
        match &mut self.receiving {
            Some(receiving) if !receiving.early.is_empty() => receiving.opening = Some(connection),
            _ => self.told_all_of(connection),
        }
    }

    /// From now on, packets of a connection go to the stages at once.
    fn told_all_of(&mut self, connection: ConnectionId) {
        if let Some(slot) = self.slots.get_mut(connection.slot()).filter(|slot| slot.connection == Some(connection)) {
            slot.is_told = true;
        }
    }

    /// Hands on packets that arrived before the stages were told of their connection: a burst a
    /// turn, for which the plan has made room behind the turn's own packets. Returns true if there
    /// were any.
    pub(crate) fn hand_on_early(&mut self, ctx: &mut LcoreContext) -> bool {
        let Some(receiving) = &self.receiving else { return false };
        let (next, burst) = (receiving.queue.next, receiving.burst);
        let Some(connection) = receiving.opening else { return false };
        let moved = self.take_early(connection, burst, |packet| {
            if let Delivery::Sink(sink) | Delivery::OneByOne(sink) = next {
                ctx.sinks[usize::from(sink)].push(packet);
            }
        });
        if let Delivery::Drop(reason) = next {
            self.stats.drops.add(reason, moved as u64);
        }
        let Some(receiving) = &mut self.receiving else { return false };
        if !receiving.early.iter().any(|packet| packet.connection() == Some(connection)) {
            receiving.opening = None;
            self.told_all_of(connection);
        }
        moved > 0
    }

    /// Takes early packets of a connection, in order, at most `most`. Returns the number taken.
    pub(super) fn take_early(&mut self, connection: ConnectionId, most: usize, mut take: impl FnMut(Packet)) -> usize {
        let Some(receiving) = self.receiving.as_mut().filter(|receiving| !receiving.early.is_empty()) else {
            return 0;
        };
        let mut taken = 0;
        for packet in receiving.early.drain_front(receiving.early.len()) {
            if taken < most && packet.connection() == Some(connection) {
                taken += 1;
                take(packet);
            } else {
                // `later` has as much room as `early`.
                receiving.later.push_iter([packet]);
            }
        }
        std::mem::swap(&mut receiving.early, &mut receiving.later);
        receiving.queue.missing += taken;
        taken
    }
}
