//! The targets of a stage's output, as the stage knows them: it counts its sends, and the places
//! selected by the packets' keys.

use verbline::engine::place_of_key;
use verbline::prelude::*;

use super::marks::{ANYBODY, Counters, PLACES_MAX};

pub(super) struct Ways {
    /// The nodes at the other ends; none if the plan drops the output's packets.
    nodes: Vec<u8>,
    by: By,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    One,
    Key,
    Turn,
    Copy,
}

impl Ways {
    pub(super) fn new(nodes: &[u8], by: &str) -> Ways {
        let by = match by {
            "key" => By::Key,
            "round-robin" => By::Turn,
            "copy" => By::Copy,
            _ => By::One,
        };
        Ways { nodes: nodes.to_vec(), by }
    }

    /// The addressed node of a packet, if there is only one.
    pub(super) fn node_of(&self, packet: &Packet) -> u8 {
        match self.by {
            By::Key => self.nodes[self.place_of(packet)],
            By::One => self.nodes.first().copied().unwrap_or(ANYBODY),
            By::Turn | By::Copy => ANYBODY,
        }
    }

    fn place_of(&self, packet: &Packet) -> usize {
        place_of_key(packet.mark(), self.nodes.len())
    }

    /// The number of packets for each place.
    fn per_place(&self, batch: &Batch) -> [u64; PLACES_MAX] {
        let mut counts = [0; PLACES_MAX];
        batch.as_slice().iter().for_each(|packet| counts[self.place_of(packet)] += 1);
        counts
    }

    pub(super) fn send(&self, id: OutId, packet: Packet, counters: &Counters, out: &mut Outputs<'_>) {
        let output = usize::from(id.0);
        let place = (self.by == By::Key).then(|| self.place_of(&packet));
        counters.copied[output].add((self.by == By::Copy).into());
        match out.send(id, packet) {
            true => {
                counters.sent[output].add(1);
                place.iter().for_each(|place| counters.dealt[output][*place].add(1));
            }
            // The report counts the drop at this stage.
            false if self.nodes.is_empty() => {}
            false => {
                counters.refused[output].add(1);
                place.iter().for_each(|place| counters.turned[output][*place].add(1));
            }
        }
    }

    /// Packets without room stay in the batch.
    pub(super) fn send_batch(&self, id: OutId, batch: &mut Batch, counters: &Counters, out: &mut Outputs<'_>) {
        let output = usize::from(id.0);
        let before = if self.by == By::Key { self.per_place(batch) } else { [0; PLACES_MAX] };
        let moved = out.send_batch(id, batch) as u64;
        counters.sent[output].add(moved);
        counters.copied[output].add(if self.by == By::Copy { moved } else { 0 });
        if self.by == By::Key {
            let stayed = self.per_place(batch);
            for (place, counter) in counters.dealt[output].iter().enumerate() {
                counter.add(before[place] - stayed[place]);
            }
        }
    }
}
