//! The addresses that a port connects to, and the choice of the next one.
//!
//! Guarantees: new connections go to the address with the fewest. An address that fails rests,
//! longer each time, and the others are asked meanwhile; after a connection its rests begin with
//! the shortest pause again. An address whose connections do not last is asked for one connection
//! at a time: connections that end in order are remade soon, and never without a pause. An address
//! that doesn't answer holds its share of the waiting requests, and the others keep theirs.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::connection::handshake::{PAUSE_MAX, PAUSE_MIN, Pauses};

/// The most requests that wait for an answer at once.
const ASKED_MAX: usize = 64;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Targets {
    all: Vec<Target>,
    of_slot: Vec<Slot>,
}

/// The address of a slot's connection.
#[derive(Clone, Copy, Debug)]
enum Slot {
    Free,
    Asked(usize),
    Made(usize, Instant),
}

#[derive(Debug)]
struct Target {
    to: SocketAddr,
    /// The local address to connect from.
    from: Option<SocketAddr>,
    /// The connections made or requested; those requested only.
    connections: usize,
    asked: usize,
    /// The last request failed.
    is_failing: bool,
    rests_until: Option<Instant>,
    pauses: Pauses,
    /// Set when a connection has not lasted: until then the shortest pause follows each request.
    paced_until: Option<Instant>,
}

/// An address to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Picked {
    pub(crate) index: usize,
    pub(crate) to: SocketAddr,
    pub(crate) from: Option<SocketAddr>,
    /// Another address has fewer connections, but rests.
    pub(crate) is_other: bool,
}

/// The addresses that may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Among {
    All,
    /// Those whose last request did not fail.
    Good,
}

impl Target {
    fn rests(&self, now: Instant) -> bool {
        self.rests_until.is_some_and(|until| until > now)
    }

    fn is_paced(&self, now: Instant) -> bool {
        self.paced_until.is_some_and(|until| until > now)
    }

    /// Lets the address rest for a pause, unless it rests longer already.
    fn rest(&mut self, now: Instant, pause: Duration) {
        self.rests_until = self.rests_until.max(Some(now + pause));
    }
}

impl Targets {
    pub(crate) fn new(list: &[(SocketAddr, Option<SocketAddr>)], slots: usize) -> Targets {
        let target = |(to, from): &(SocketAddr, Option<SocketAddr>)| Target {
            to: *to,
            from: *from,
            connections: 0,
            asked: 0,
            is_failing: false,
            rests_until: None,
            pauses: Pauses::START,
            paced_until: None,
        };
        Targets { all: list.iter().map(target).collect(), of_slot: vec![Slot::Free; slots] }
    }

    /// The address with the fewest connections that may be asked; `None` if all rest, or have their
    /// share of waiting requests.
    pub(crate) fn pick(&self, now: Instant, among: Among) -> Option<Picked> {
        let fewest = |(_, target): &(usize, &Target)| target.connections;
        let first = self.all.iter().enumerate().min_by_key(fewest)?;
        let may_be = |target: &Target| among == Among::All || !target.is_failing;
        let may_be_asked = self
            .all
            .iter()
            .enumerate()
            .filter(|(_, target)| !target.rests(now) && may_be(target) && self.has_share(target));
        let (index, target) = may_be_asked.min_by_key(fewest)?;
        Some(Picked { index, to: target.to, from: target.from, is_other: first.1.rests(now) })
    }

    /// Whether another request to this address may wait for its answer.
    fn has_share(&self, target: &Target) -> bool {
        target.asked < (ASKED_MAX / self.all.len()).max(1)
    }

    /// The end of the earliest rest.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.all.iter().filter(|target| self.has_share(target)).filter_map(|target| target.rests_until).min()
    }

    /// Notes a request to an address for the connection of a slot.
    pub(crate) fn asked(&mut self, index: usize, slot: usize, now: Instant) {
        self.of_slot[slot] = Slot::Asked(index);
        let target = &mut self.all[index];
        target.connections += 1;
        target.asked += 1;
        target.rests_until = target.is_paced(now).then(|| now + PAUSE_MIN);
    }

    /// Notes that the connection of a slot was made.
    pub(crate) fn made(&mut self, slot: usize, now: Instant) {
        if let Slot::Asked(index) = self.of_slot[slot] {
            self.of_slot[slot] = Slot::Made(index, now);
            let target = &mut self.all[index];
            target.asked -= 1;
            (target.is_failing, target.pauses) = (false, Pauses::START);
        }
    }

    /// Notes that the connection of a slot could not be made.
    pub(crate) fn failed(&mut self, slot: usize, now: Instant) {
        if let Some(index) = self.over(slot) {
            let target = &mut self.all[index];
            target.is_failing = true;
            if !target.rests(now) || target.is_paced(now) {
                let pause = target.pauses.take();
                target.rest(now, pause);
            }
        }
    }

    /// Notes that the connection of a slot ended, and not by this side. Two ends that can connect
    /// but not talk would otherwise reconnect without a pause.
    pub(crate) fn broke(&mut self, slot: usize, now: Instant) {
        if let Slot::Made(index, since) = self.of_slot[slot]
            && now < since + PAUSE_MAX
        {
            let target = &mut self.all[index];
            target.paced_until = Some(now + PAUSE_MAX);
            target.rest(now, PAUSE_MIN);
        }
    }

    /// Notes that the connection of a slot is over. Returns its address, once.
    pub(crate) fn over(&mut self, slot: usize) -> Option<usize> {
        let index = match std::mem::replace(self.of_slot.get_mut(slot)?, Slot::Free) {
            Slot::Free => return None,
            Slot::Asked(index) => {
                self.all[index].asked -= 1;
                index
            }
            Slot::Made(index, _) => index,
        };
        self.all[index].connections -= 1;
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Targets {
        let list = [1, 2, 3].map(|port| (SocketAddr::from(([10, 9, 9, 1], port)), None));
        Targets::new(&list, 8)
    }

    fn ask(targets: &mut Targets, slot: usize, now: Instant) -> Option<(usize, bool)> {
        let picked = targets.pick(now, Among::All)?;
        targets.asked(picked.index, slot, now);
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
        targets.made(1, later);
        targets.broke(1, later + PAUSE_MAX);
        for slot in [0, 1] {
            targets.failed(slot, later);
        }
        assert_eq!(ask(&mut targets, 0, later), None, "all rest");
        assert_eq!(ask(&mut targets, 0, later + PAUSE_MIN * 2), Some((0, false)));
    }

    /// Regressions: each was requested again at once, two thousand times a second; and remaking
    /// forty connections that were closed in order took half a minute.
    #[test]
    fn an_address_whose_connections_do_not_last_is_asked_for_one_at_a_time() {
        let (mut targets, start) = (Targets::new(&[(SocketAddr::from(([10, 9, 9, 1], 1)), None)], 8), Instant::now());
        let mut now = start;
        (0..8).for_each(|slot| assert_eq!(ask(&mut targets, slot, now), Some((0, false))));
        for slot in 0..8 {
            targets.made(slot, now);
            targets.broke(slot, now);
            assert_eq!(targets.over(slot), Some(0));
        }
        for _ in 0..40 {
            assert_eq!((ask(&mut targets, 0, now), targets.next_at()), (None, Some(now + PAUSE_MIN)));
            now += PAUSE_MIN;
            assert_eq!(ask(&mut targets, 0, now), Some((0, false)));
            assert_eq!(ask(&mut targets, 1, now), None, "one at a time");
            targets.made(0, now);
            targets.broke(0, now);
            targets.over(0);
        }
        assert_eq!(now, start + PAUSE_MIN * 40);
        // The address is trusted again once no connection has ended for the time that one is to
        // last.
        now += PAUSE_MAX;
        (0..8).for_each(|slot| assert_eq!(ask(&mut targets, slot, now), Some((0, false))));
    }

    #[test]
    fn pauses_grow_where_connections_do_not_last_and_then_are_not_made() {
        let (mut targets, mut now) = (Targets::new(&[(SocketAddr::from(([10, 9, 9, 1], 1)), None)], 8), Instant::now());
        ask(&mut targets, 0, now).unwrap();
        targets.made(0, now);
        targets.broke(0, now);
        targets.over(0);
        now += PAUSE_MIN;
        for pause in [PAUSE_MIN, PAUSE_MIN * 2, PAUSE_MIN * 4] {
            ask(&mut targets, 0, now).unwrap();
            targets.failed(0, now);
            assert_eq!(targets.next_at(), Some(now + pause));
            now += pause;
        }
        ask(&mut targets, 0, now).unwrap();
        targets.made(0, now);
        now += PAUSE_MAX;
        // Ended by this side: it may be requested again at once, and another has lasted.
        assert_eq!((targets.over(0), ask(&mut targets, 0, now)), (Some(0), Some((0, false))));
        targets.made(0, now);
        now += PAUSE_MAX;
        targets.broke(0, now);
        targets.over(0);
        ask(&mut targets, 0, now).unwrap();
        targets.failed(0, now);
        assert_eq!(targets.next_at(), Some(now + PAUSE_MIN), "the next pause is the shortest");
    }

    /// Regression: a listener with one slot, which is not free yet when its only peer asks again,
    /// was waited for longer each time, although each connection was made in the end.
    #[test]
    fn a_connection_that_is_made_ends_the_pauses_before_it() {
        let (mut targets, mut now) = (Targets::new(&[(SocketAddr::from(([10, 9, 9, 1], 1)), None)], 1), Instant::now());
        for _ in 0..20 {
            ask(&mut targets, 0, now).unwrap();
            targets.failed(0, now);
            assert_eq!(targets.next_at(), Some(now + PAUSE_MIN));
            now += PAUSE_MIN;
            ask(&mut targets, 0, now).unwrap();
            targets.made(0, now);
            // Closed by this side.
            targets.over(0);
        }
    }

    /// Regression: a silent address held all waiting requests, and no other address was asked.
    #[test]
    fn an_address_that_does_not_answer_leaves_the_others_their_share() {
        let list = [1, 2].map(|port| (SocketAddr::from(([10, 9, 9, 1], port)), None));
        let (mut targets, now) = (Targets::new(&list, 200), Instant::now());
        let mut made = 0;
        for slot in 0..200 {
            let Some((index, _)) = ask(&mut targets, slot, now) else { break };
            if index == 1 {
                targets.made(slot, now);
                made += 1;
            }
        }
        assert_eq!(made, 200 - ASKED_MAX / 2);
    }

    /// Regression: of two unreachable addresses, one always had finished its rest by the time that
    /// the other's request had timed out, and the third was never asked.
    #[test]
    fn once_one_has_failed_those_are_asked_that_did_not() {
        let (mut targets, now) = (three(), Instant::now());
        for slot in 0..2 {
            ask(&mut targets, slot, now).unwrap();
            targets.failed(slot, now);
        }
        let rested = now + PAUSE_MAX;
        assert_eq!(targets.pick(rested, Among::All).unwrap().index, 0);
        let picked = targets.pick(rested, Among::Good).unwrap();
        assert_eq!(picked.index, 2);
        targets.asked(2, 0, rested);
        targets.failed(0, rested);
        assert_eq!(targets.pick(rested + PAUSE_MAX, Among::Good), None);
    }
}
