//! Sends that do more than fill a batch: to a spread, which deals packets out by the room of its
//! places, and to a ring that drops its oldest packets.

use verbline_mem::{Batch, Packet};
use verbline_plan::SpreadBy;

use crate::api::outputs::Outputs;
use crate::api::spread::Spread;
use crate::stats::drop_reason::DropReason;

impl Outputs<'_> {
    /// [`Outputs::send`] to a spread.
    #[inline(never)]
    pub(super) fn spread(&mut self, spread: &Spread, packet: Packet) -> bool {
        let sink = match spread.by {
            SpreadBy::Key => spread.by_key(&packet),
            SpreadBy::RoundRobin => spread.in_turn(|sink| self.lcore.ctx.sinks[sink].room()),
            SpreadBy::Copy => {
                self.copies(spread, &packet);
                usize::from(spread.places[0])
            }
        };
        let taken = self.lcore.ctx.sinks[sink].push(packet);
        self.sent += u64::from(taken);
        taken
    }

    /// [`Outputs::send_batch`] to a spread: packets whose place has no room stay, in order, and
    /// later packets to other places still go.
    #[inline(never)]
    pub(super) fn spread_batch(&mut self, spread: &Spread, batch: &mut Batch) -> usize {
        let moved = match spread.by {
            SpreadBy::Key => {
                let (sinks, packets) = (&mut *self.lcore.ctx.sinks, batch.len());
                // Few places, each with room for the whole batch: no packet is offered twice.
                let dealt = match spread.places.len() {
                    2 => spread.deal_by_key::<2>(sinks, batch),
                    3 => spread.deal_by_key::<3>(sinks, batch),
                    4 => spread.deal_by_key::<4>(sinks, batch),
                    8 => spread.deal_by_key::<8>(sinks, batch),
                    _ => false,
                };
                if dealt {
                    self.sent += packets as u64;
                    return packets;
                }
                batch.offer(|packet| sinks[spread.by_key(&packet)].offer(packet))
            }
            SpreadBy::RoundRobin => {
                let sinks = &mut *self.lcore.ctx.sinks;
                batch.offer(|packet| sinks[spread.in_turn(|sink| sinks[sink].room())].offer(packet))
            }
            SpreadBy::Copy => batch.offer(|packet| {
                if spread.room(|sink| self.lcore.ctx.sinks[sink].room()) == 0 {
                    return Err(packet);
                }
                self.copies(spread, &packet);
                self.lcore.ctx.sinks[usize::from(spread.places[0])].offer(packet)
            }),
        };
        self.sent += moved as u64;
        moved
    }

    /// Sends to a ring that drops the oldest.
    #[inline(never)]
    pub(super) fn displace(&mut self, sink: u16, packet: Packet) -> bool {
        let taken = self.lcore.ctx.sinks[usize::from(sink)].push(packet);
        self.sent += u64::from(taken);
        taken
    }

    /// Sends a copy to every place but the first. Copies without a packet of the pool are counted
    /// there (`alloc_failed`); a copy too short for the data counts as a drop.
    fn copies(&mut self, spread: &Spread, packet: &Packet) {
        for place in &spread.places[1..] {
            let Some(mut copy) = self.alloc() else { continue };
            if !copy.copy_from(packet) {
                self.drop(copy, DropReason::TooLong);
                continue;
            }
            self.sent += u64::from(self.lcore.ctx.sinks[usize::from(*place)].push(copy));
        }
    }
}
