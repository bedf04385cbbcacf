//! A single false datagram can do no more to the arbitrated stream than stand in for its own
//! messages.
//!
//! The oracle is the feed: both channels carry every message, and each datagram knows whether it is
//! true.

use proptest::prelude::*;
use tick_to_trade::arbitration::{Arbiter, ArbiterSpec, Channel, Event, Offer};

/// A datagram: its first sequence number, its message count, and whether the exchange sent it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Datagram {
    first: u64,
    count: u32,
    is_true: bool,
}

impl Datagram {
    fn end(self) -> u64 {
        self.first + u64::from(self.count)
    }
}

/// The exchange's datagrams on both channels: the messages from 1 on, in these sizes.
fn feed(sizes: &[u32]) -> Vec<Datagram> {
    let mut next = 1;
    let datagram = |&count: &u32| {
        let first = next;
        next += u64::from(count);
        Datagram { first, count, is_true: true }
    };
    sizes.iter().map(datagram).collect()
}

/// The trader's view: for each sequence number from 1 on, whether the true message came.
#[derive(Default)]
struct Seen {
    true_message: Vec<bool>,
    arbiter: Option<Arbiter<Datagram>>,
}

impl Seen {
    fn take(&mut self, datagram: Datagram, skip: u32) {
        let first = datagram.first + u64::from(skip);
        assert_eq!(first, self.true_message.len() as u64 + 1, "in order, once");
        self.true_message.extend((first..datagram.end()).map(|_| datagram.is_true));
    }

    fn gap(&mut self, first: u64, count: u64) {
        assert_eq!(first, self.true_message.len() as u64 + 1, "in order, once");
        assert!(count < 1 << 20, "a gap of {count} at {first}: a false number has moved the stream");
        self.true_message.extend((0..count).map(|_| false));
    }
}

const NEVER: u64 = u64::MAX;

/// Sends the arrivals through an arbiter, and then the channels' heartbeats at `end`.
fn run(spec: ArbiterSpec, arrivals: &[(Channel, Datagram)], end: u64) -> Seen {
    let mut arbiter = Arbiter::new(spec);
    let mut seen = Seen::default();
    for (now_ns, &(channel, datagram)) in arrivals.iter().enumerate() {
        match datagram.count {
            0 => arbiter.heartbeat(channel, datagram.first),
            count => match arbiter.offer(channel, datagram.first, count, datagram, now_ns as u64) {
                Offer::Ready { item, skip } => seen.take(item, skip),
                Offer::Held | Offer::Old(_) | Offer::Refused(_) => {}
            },
        }
        drain(&mut arbiter, &mut seen, now_ns as u64);
    }
    for _ in 0..2 {
        arbiter.heartbeat(Channel::A, end);
        arbiter.heartbeat(Channel::B, end);
        drain(&mut arbiter, &mut seen, arrivals.len() as u64);
    }
    seen.arbiter = Some(arbiter);
    seen
}

fn drain(arbiter: &mut Arbiter<Datagram>, seen: &mut Seen, now_ns: u64) {
    while let Some(event) = arbiter.pop(now_ns) {
        match event {
            Event::Message { item, skip, .. } => seen.take(item, skip),
            Event::Gap { first, count, .. } => seen.gap(first, count),
        }
    }
}

/// Merges the channels by `turns`, so that B lags behind A or leads it.
fn interleaved(a: &[Datagram], b: &[Datagram], turns: &[bool]) -> Vec<(Channel, Datagram)> {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut arrivals = Vec::new();
    for &is_a in turns.iter().cycle() {
        let (channel, next) = match (is_a, a.peek().is_some(), b.peek().is_some()) {
            (_, false, false) => break,
            (true, true, _) | (_, true, false) => (Channel::A, a.next()),
            _ => (Channel::B, b.next()),
        };
        arrivals.extend(next.map(|datagram| (channel, *datagram)));
    }
    arrivals
}

/// A sequence number of a corrupt or hostile datagram: near the true one, or anything.
fn number(near: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0u64..=80).prop_map(move |by| (near + 40).saturating_sub(by)),
        2 => (0u64..4096).prop_map(move |by| near + by),
        1 => (0u32..64).prop_map(move |bit| near ^ (1 << bit)),
        1 => any::<u64>(),
        1 => (u64::MAX - 40)..=u64::MAX,
    ]
}

/// A feed, the channels' order of arrival, the position of the false datagram, and its contents.
#[derive(Debug, Clone)]
struct Attack {
    sizes: Vec<u32>,
    turns: Vec<bool>,
    at: usize,
    says: (u64, u32),
    replaces: bool,
}

fn attack() -> impl Strategy<Value = Attack> {
    let feed = (prop::collection::vec(1u32..5, 4..120), prop::collection::vec(any::<bool>(), 1..60));
    feed.prop_flat_map(|(sizes, turns)| {
        let at = 0..sizes.len();
        (Just(sizes), Just(turns), at, any::<bool>())
    })
    .prop_flat_map(|(sizes, turns, at, replaces)| {
        let near = feed_first(&sizes, at);
        (Just(sizes), Just(turns), Just(at), number(near), 0u32..40, Just(replaces)).prop_map(
            |(sizes, turns, at, first, count, replaces)| Attack { sizes, turns, at, says: (first, count), replaces },
        )
    })
}

fn feed_first(sizes: &[u32], at: usize) -> u64 {
    1 + sizes[..at].iter().map(|&size| u64::from(size)).sum::<u64>()
}

impl Attack {
    /// The false datagram; `None` if its numbers exceed 64 bits (then the framing refuses it).
    fn datagram(&self) -> Option<Datagram> {
        let (first, count) = self.says;
        first.checked_add(u64::from(count)).map(|_| Datagram { first, count, is_true: false })
    }

    fn arrivals(&self) -> Vec<(Channel, Datagram)> {
        let truth = feed(&self.sizes);
        let mut a = truth.clone();
        let at = self.at..self.at + usize::from(self.replaces);
        a.splice(at, self.datagram());
        interleaved(&a, &truth, &self.turns)
    }

    fn end(&self) -> u64 {
        feed_first(&self.sizes, self.sizes.len())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4096) })]

    /// Both channels carry all messages; one datagram of A is replaced by any datagram, or any one
    /// is inserted before it. A false datagram that does not start at the channel's next number
    /// costs nothing; one that does replaces the numbers that it carries, and no others.
    #[test]
    fn costs_nothing_but_itself(attack in attack()) {
        // Room for the greatest lead of one channel over the other.
        let spec = ArbiterSpec { window: 512, timeout_ns: NEVER, first: Some(1), ..ArbiterSpec::default() };
        let seen = run(spec, &attack.arrivals(), attack.end());
        let stands = feed_first(&attack.sizes, attack.at);
        for (index, &is_true) in seen.true_message.iter().enumerate() {
            let sequence = index as u64 + 1;
            let carries = |x: &Datagram| x.first <= stands && (x.first..x.end()).contains(&sequence);
            let is_carried = attack.datagram().as_ref().is_some_and(carries);
            prop_assert!(is_true || is_carried, "message {sequence} was lost or false");
        }
        prop_assert!(seen.true_message.len() as u64 >= attack.end() - 1);
        let counts = *seen.arbiter.as_ref().expect("it ran").counts();
        prop_assert_eq!(counts.lost, 0);
        let received: u64 = counts.received.iter().sum();
        let held = received - counts.delivered - counts.duplicates - counts.late - counts.refused;
        prop_assert!(held <= u64::from(attack.says.1), "{held} messages are unaccounted for: {counts:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2048) })]

    /// One channel is further ahead than the window is long: a false datagram in place of a true
    /// one costs no more than the loss of the true one.
    #[test]
    fn in_a_short_window_it_costs_no_more_than_a_lost_one(
        attack in attack(),
        window in prop_oneof![Just(8u32), Just(32)],
    ) {
        let spec = ArbiterSpec { window, timeout_ns: NEVER, first: Some(1), ..ArbiterSpec::default() };
        let truth = feed(&attack.sizes);
        let mut a = truth.clone();
        if attack.replaces {
            a.remove(attack.at);
        }
        let without = run(spec, &interleaved(&a, &truth, &attack.turns), attack.end());
        let with = run(spec, &attack.arrivals(), attack.end());
        for (index, &came) in without.true_message.iter().enumerate() {
            let is_carried = attack.datagram().is_some_and(|x| (x.first..x.end()).contains(&(index as u64 + 1)));
            prop_assert!(!came || with.true_message[index] || is_carried, "message {}", index + 1);
        }
    }

    /// The channels lose any datagrams, both of the same feed. A false datagram with far numbers
    /// changes nothing.
    #[test]
    fn far_away_it_changes_nothing_whatever_the_channels_lose(
        attack in attack(),
        lost in prop::array::uniform2(prop::collection::vec(prop::bool::weighted(0.3), 1..40)),
        far in prop_oneof![1u64..5_000, 1u64..1 << 31, 1u64..u64::MAX / 2],
    ) {
        let spec = ArbiterSpec { window: 512, timeout_ns: NEVER, first: Some(1), ..ArbiterSpec::default() };
        let truth = feed(&attack.sizes);
        let kept = |lost: &Vec<bool>| -> Vec<Datagram> {
            truth.iter().enumerate().filter(|(i, _)| !lost[i % lost.len()]).map(|(_, d)| *d).collect()
        };
        let (a, b) = (kept(&lost[0]), kept(&lost[1]));
        let mut arrivals = interleaved(&a, &b, &attack.turns);
        let without = run(spec, &arrivals, attack.end());
        let x = Datagram { first: attack.end() + 512 + far, count: attack.says.1, is_true: false };
        arrivals.insert(attack.at.min(arrivals.len()), (Channel::A, x));
        let with = run(spec, &arrivals, attack.end());
        prop_assert_eq!(&with.true_message, &without.true_message);
        for (index, &came) in with.true_message.iter().enumerate() {
            let carries = |d: &Datagram| (d.first..d.end()).contains(&(index as u64 + 1));
            prop_assert_eq!(came, a.iter().chain(&b).any(carries), "message {}", index + 1);
        }
    }

    /// Without a first number, the stream begins where two datagrams are near each other, for any
    /// single false one.
    #[test]
    fn it_cannot_choose_where_the_stream_begins(attack in attack(), far in (1u64 << 20)..1 << 40) {
        let spec = ArbiterSpec { window: 256, timeout_ns: NEVER, first: None, ..ArbiterSpec::default() };
        let truth = feed(&attack.sizes);
        let mut arrivals = interleaved(&truth, &truth, &attack.turns);
        let x = Datagram { first: far, count: attack.says.1.max(1), is_true: false };
        arrivals.insert(attack.at.min(3), (Channel::A, x));
        let seen = run(spec, &arrivals, attack.end());
        prop_assert!(seen.true_message.iter().all(|&came| came) && seen.true_message.len() as u64 == attack.end() - 1);
    }
}

/// The example of the issue: 10,000 messages on both channels, with a number far ahead after the
/// hundredth.
#[test]
fn one_corrupt_number_does_not_silence_the_feed() {
    for says in [100 + 256, 100 + 300, 1 << 31, 4_294_967_295, 1 << 50] {
        let attack =
            Attack { sizes: vec![1; 10_000], turns: vec![true, false], at: 100, says: (says, 1), replaces: true };
        let spec = ArbiterSpec { window: 256, first: Some(1), timeout_ns: 1_000, ..ArbiterSpec::default() };
        let seen = run(spec, &attack.arrivals(), attack.end());
        assert_eq!(seen.true_message.iter().filter(|&&came| came).count(), 10_000, "{says}");
        let counts = *seen.arbiter.expect("it ran").counts();
        assert_eq!((counts.delivered, counts.lost, counts.gaps), (10_000, 0, 0), "{says}");
    }
}
