//! The addresses that a port connects to: which of them is asked next.
//!
//! Guarantees: connections go where the fewest are; an address that fails rests, longer each time,
//! and the others are asked meanwhile; one that answers rests no more than the shortest time again.

use std::net::SocketAddr;
use std::time::Instant;

use crate::connection::handshake::Pauses;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Targets {
    all: Vec<Target>,
    /// Which of them the connection of each slot goes to.
    of_slot: Vec<Option<usize>>,
}

#[derive(Debug)]
struct Target {
    to: SocketAddr,
    /// The address to come from.
    from: Option<SocketAddr>,
    /// Those that are made or asked for.
    connections: usize,
    rests_until: Option<Instant>,
    pauses: Pauses,
}

/// An address that is to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Picked {
    pub(crate) index: usize,
    pub(crate) to: SocketAddr,
    pub(crate) from: Option<SocketAddr>,
    /// Another one was its turn, and rests.
    pub(crate) is_other: bool,
}

impl Targets {
    pub(crate) fn new(list: &[(SocketAddr, Option<SocketAddr>)], slots: usize) -> Targets {
        let target = |(to, from): &(SocketAddr, Option<SocketAddr>)| Target {
            to: *to,
            from: *from,
            connections: 0,
            rests_until: None,
            pauses: Pauses::START,
        };
        Targets { all: list.iter().map(target).collect(), of_slot: vec![None; slots] }
    }

    /// The address with the fewest connections, or of those that don't rest; `None`: all rest.
    pub(crate) fn pick(&self, now: Instant) -> Option<Picked> {
        let rests = |target: &Target| target.rests_until.is_some_and(|until| until > now);
        let fewest = |(_, target): &(usize, &Target)| target.connections;
        let first = self.all.iter().enumerate().min_by_key(fewest)?;
        let (index, target) = self.all.iter().enumerate().filter(|(_, target)| !rests(target)).min_by_key(fewest)?;
        Some(Picked { index, to: target.to, from: target.from, is_other: rests(first.1) })
    }

    /// When the next of them has rested.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.all.iter().filter_map(|target| target.rests_until).min()
    }

    /// The address is asked for the connection of a slot.
    pub(crate) fn asked(&mut self, index: usize, slot: usize) {
        self.of_slot[slot] = Some(index);
        self.all[index].connections += 1;
        self.all[index].rests_until = None;
    }

    /// The connection of a slot was made.
    pub(crate) fn made(&mut self, slot: usize) {
        if let Some(index) = self.of_slot[slot] {
            self.all[index].pauses = Pauses::START;
        }
    }

    /// The connection of a slot could not be made.
    pub(crate) fn failed(&mut self, slot: usize, now: Instant) {
        if let Some(index) = self.over(slot) {
            let target = &mut self.all[index];
            target.rests_until = Some(now + target.pauses.take());
        }
    }

    /// The connection of a slot is over. Gives its address, once.
    pub(crate) fn over(&mut self, slot: usize) -> Option<usize> {
        let index = self.of_slot.get_mut(slot)?.take()?;
        self.all[index].connections -= 1;
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::handshake::PAUSE_MIN;

    fn three() -> Targets {
        let list = [1, 2, 3].map(|port| (SocketAddr::from(([10, 9, 9, 1], port)), None));
        Targets::new(&list, 8)
    }

    fn ask(targets: &mut Targets, slot: usize, now: Instant) -> Option<(usize, bool)> {
        let picked = targets.pick(now)?;
        targets.asked(picked.index, slot);
        Some((picked.index, picked.is_other))
    }

    #[test]
    fn connections_are_spread_and_one_that_is_over_leaves_its_turn() {
        let (mut targets, now) = (three(), Instant::now());
        let picked: Vec<_> = (0..6).map(|slot| ask(&mut targets, slot, now).unwrap()).collect();
        assert_eq!(picked, [0, 1, 2, 0, 1, 2].map(|index| (index, false)));
        assert_eq!((targets.over(4), targets.over(4)), (Some(1), None));
        assert_eq!(ask(&mut targets, 4, now), Some((1, false)));
    }

    #[test]
    fn one_that_fails_rests_longer_each_time_and_the_others_take_over() {
        let (mut targets, now) = (three(), Instant::now());
        assert_eq!(ask(&mut targets, 0, now), Some((0, false)));
        targets.failed(0, now);
        assert_eq!(ask(&mut targets, 0, now), Some((1, true)));
        assert_eq!(targets.next_at(), Some(now + PAUSE_MIN));
        let later = now + PAUSE_MIN;
        assert_eq!(ask(&mut targets, 1, later), Some((0, false)), "it has rested");
        targets.failed(1, later);
        assert_eq!(targets.next_at(), Some(later + PAUSE_MIN * 2));
        assert_eq!(ask(&mut targets, 1, later), Some((2, true)));
        targets.made(1);
        for slot in [0, 1] {
            targets.failed(slot, later);
        }
        assert_eq!(ask(&mut targets, 0, later), None, "all rest");
        assert_eq!(ask(&mut targets, 0, later + PAUSE_MIN * 2), Some((0, false)));
        targets.made(0);
        targets.failed(0, later);
        assert_eq!(targets.next_at(), Some(later + PAUSE_MIN), "it had answered");
    }
}
