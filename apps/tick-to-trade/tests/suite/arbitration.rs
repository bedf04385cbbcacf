//! The arbiter under any loss, packet size and interleaving.

use proptest::prelude::*;
use tick_to_trade::arbitration::{Arbiter, ArbiterSpec, Channel, Event, GapCause, Offer};

/// A packet on a channel: first sequence number and message count.
type Packet = (u64, u32);

/// The packets of a channel for the messages 1..=last, of the given sizes, without lost ones.
fn channel(last: u64, sizes: &[u32], lost: &[bool]) -> Vec<Packet> {
    let mut packets = Vec::new();
    let mut next = 1;
    for i in 0.. {
        if next > last {
            break;
        }
        let count = u64::from(sizes[i % sizes.len()]).min(last + 1 - next) as u32;
        if !lost[i % lost.len()] {
            packets.push((next, count));
        }
        next += u64::from(count);
    }
    packets
}

/// The stream as its user sees it: each sequence number, with whether it was delivered.
#[derive(Default)]
struct Stream {
    next: u64,
    delivered: Vec<bool>,
    causes: Vec<GapCause>,
}

impl Stream {
    fn messages(&mut self, first: u64, count: u64, delivered: bool) {
        assert_eq!(first, self.next, "in order, without a hole, never twice");
        assert!(count > 0);
        self.next += count;
        self.delivered.extend((0..count).map(|_| delivered));
    }

    fn drain(&mut self, arbiter: &mut Arbiter<Packet>, now_ns: u64) {
        while let Some(event) = arbiter.pop(now_ns) {
            match event {
                Event::Message { item: (first, count), sequence, skip } => {
                    assert_eq!(first + u64::from(skip), sequence);
                    self.messages(sequence, u64::from(count - skip), true);
                }
                Event::Gap { first, count, cause } => {
                    self.messages(first, count, false);
                    self.causes.push(cause);
                }
            }
        }
    }
}

/// Sends both channels in the order of `turns`.
fn run(
    last: u64,
    channels: [Vec<Packet>; 2],
    turns: &[bool],
    spec: ArbiterSpec,
    step_ns: u64,
) -> (Stream, Arbiter<Packet>) {
    let mut arbiter = Arbiter::new(spec);
    let mut stream = Stream { next: 1, ..Stream::default() };
    let mut at = [0, 0];
    let mut now_ns = 0;
    for turn in 0.. {
        let mut which = usize::from(turns[turn % turns.len()]);
        if at[which] == channels[which].len() {
            which = 1 - which;
        }
        let Some(&packet) = channels[which].get(at[which]) else { break };
        at[which] += 1;
        now_ns += step_ns;
        let channel = [Channel::A, Channel::B][which];
        match arbiter.offer(channel, packet.0, packet.1, packet, now_ns) {
            Offer::Ready { item, skip } => {
                stream.messages(item.0 + u64::from(skip), u64::from(item.1 - skip), true);
            }
            Offer::Held | Offer::Old(_) => {}
            Offer::Refused(_) => panic!("nothing is to be refused when every offer is drained"),
        }
        stream.drain(&mut arbiter, now_ns);
    }
    // The first heartbeat is a claim, the second is believed.
    for channel in [Channel::A, Channel::B, Channel::A, Channel::B] {
        arbiter.heartbeat(channel, last + 1);
        stream.drain(&mut arbiter, now_ns);
    }
    (stream, arbiter)
}

fn check_totals(stream: &Stream, arbiter: &Arbiter<Packet>, channels: &[Vec<Packet>; 2], last: u64) {
    let counts = arbiter.counts();
    let sent = |packets: &[Packet]| packets.iter().map(|p| u64::from(p.1)).sum::<u64>();
    assert_eq!(stream.next, last + 1, "each message was delivered or reported");
    assert_eq!(arbiter.held(), 0);
    assert_eq!(counts.received, [sent(&channels[0]), sent(&channels[1])]);
    assert_eq!(counts.delivered, stream.delivered.iter().filter(|&&d| d).count() as u64);
    assert_eq!(counts.lost, stream.delivered.iter().filter(|&&d| !d).count() as u64);
    assert_eq!(counts.gaps, stream.causes.len() as u64);
    let received: u64 = counts.received.iter().sum();
    assert_eq!(received, counts.delivered + counts.duplicates + counts.late, "what came is accounted for");
}

fn lossy(max: usize) -> impl Strategy<Value = Vec<bool>> {
    prop::collection::vec(prop::bool::weighted(0.3), 1..max)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Channels in order, and a window large enough: a message is delivered if and only if it came
    /// on a channel.
    #[test]
    fn only_what_both_lost_is_missing(
        last in 1u64..200,
        sizes in prop::array::uniform2(prop::collection::vec(1u32..6, 1..8)),
        lost in prop::array::uniform2(lossy(30)),
        turns in prop::collection::vec(any::<bool>(), 1..60),
    ) {
        let channels = [channel(last, &sizes[0], &lost[0]), channel(last, &sizes[1], &lost[1])];
        let spec = ArbiterSpec { window: 512, timeout_ns: u64::MAX, first: Some(1), ..ArbiterSpec::default() };
        let (stream, arbiter) = run(last, channels.clone(), &turns, spec, 1);
        check_totals(&stream, &arbiter, &channels, last);
        for (i, &delivered) in stream.delivered.iter().enumerate() {
            let sequence = i as u64 + 1;
            let holds = |&(first, count): &(u64, u32)| (first..first + u64::from(count)).contains(&sequence);
            let came = channels.iter().flatten().any(holds);
            prop_assert_eq!(delivered, came, "message {}", sequence);
        }
        prop_assert!(stream.causes.iter().all(|&c| c == GapCause::BothPassed));
    }

    /// Small windows, time-outs, packets out of order: still each message is delivered once and in
    /// order, or in a gap.
    #[test]
    fn every_message_once_or_in_a_gap(
        last in 1u64..200,
        sizes in prop::array::uniform2(prop::collection::vec(1u32..9, 1..8)),
        lost in prop::array::uniform2(lossy(30)),
        turns in prop::collection::vec(any::<bool>(), 1..60),
        swaps in prop::collection::vec((0usize..100, 0usize..4), 0..40),
        window in 1u32..40,
        timeout_ns in 0u64..20,
    ) {
        let mut channels = [channel(last, &sizes[0], &lost[0]), channel(last, &sizes[1], &lost[1])];
        for (i, (at, by)) in swaps.into_iter().enumerate() {
            let packets = &mut channels[i % 2];
            if at + by < packets.len() {
                packets.swap(at, at + by);
            }
        }
        let spec = ArbiterSpec { window, timeout_ns, first: Some(1), ..ArbiterSpec::default() };
        let (stream, arbiter) = run(last, channels.clone(), &turns, spec, 1);
        check_totals(&stream, &arbiter, &channels, last);
    }

    /// No sequence of calls panics, and delivered numbers only increase.
    #[test]
    fn hostile_calls_never_panic(
        calls in prop::collection::vec(
            (0u8..8, prop_oneof![0u64..50, any::<u64>(), u64::MAX - 9..=u64::MAX], 0u32..9, 0u64..100),
            0..200,
        ),
        window in 0u32..20,
        jump_max in prop_oneof![Just(64u64), Just(u64::MAX)],
    ) {
        let mut arbiter = Arbiter::new(ArbiterSpec { window, timeout_ns: 30, first: None, jump_max });
        let mut last = 0;
        let mut now_ns = 0;
        for (call, sequence, count, step) in calls {
            now_ns += step;
            let channel = if call % 2 == 0 { Channel::A } else { Channel::B };
            match call {
                0 | 1 => arbiter.heartbeat(channel, sequence),
                2 | 3 => while let Some(event) = arbiter.pop(now_ns) {
                    let (Event::Message { sequence: at, .. } | Event::Gap { first: at, .. }) = event;
                    prop_assert!(at >= last);
                    last = at + 1;
                },
                _ => if let Offer::Ready { skip, .. } = arbiter.offer(channel, sequence, count, (), now_ns) {
                    prop_assert!(sequence + u64::from(skip) >= last);
                    last = sequence + u64::from(skip) + 1;
                },
            }
        }
    }
}
