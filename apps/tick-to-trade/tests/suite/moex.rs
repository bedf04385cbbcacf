//! The recorded MOEX FORTS feed: decoded, arbitrated and built into books, and compared with the
//! exchange's own snapshots.

use std::collections::{HashMap, HashSet};

use tick_to_trade::arbitration::{Arbiter, ArbiterSpec, Channel, Event, GapCause, Offer};
use tick_to_trade::fast::{
    Action, BooksSpec, Decoder, EntryOutcome, EntryType, FortsBooks, Message, MessageKind, MoexFeed, Recording,
    SnapshotOutcome, Trust,
};

/// A datagram: channel and index.
type Item = (usize, usize);

/// Both channels in the order of their sending times, as a receiver sees them; `drops` decides the
/// losses.
fn arrivals(feed: &MoexFeed, mut drops: impl FnMut() -> bool) -> Vec<Item> {
    let mut items: Vec<(u32, Item)> = (0..2)
        .flat_map(|c| feed.increments[c].datagrams.iter().enumerate().map(move |(i, d)| (d.sent_ms_of_day, (c, i))))
        .collect();
    items.sort();
    items.into_iter().map(|(_, item)| item).filter(|_| !drops()).collect()
}

/// The arbitrated stream, drained to its end.
fn arbitrate(feed: &MoexFeed, arrivals: &[Item], first: u64) -> (Vec<Event<Item>>, Arbiter<Item>) {
    let mut arbiter = Arbiter::new(ArbiterSpec { first: Some(first), timeout_ns: u64::MAX, ..ArbiterSpec::default() });
    let mut events = Vec::new();
    for &(c, i) in arrivals {
        let sequence = u64::from(feed.increments[c].datagrams[i].msg_seq_num);
        match arbiter.offer([Channel::A, Channel::B][c], sequence, 1, (c, i), 0) {
            Offer::Ready { item, skip } => events.push(Event::Message { item, sequence, skip }),
            Offer::Held | Offer::Old(_) => {}
            Offer::Refused(_) => panic!("{sequence} refused"),
        }
        events.extend(std::iter::from_fn(|| arbiter.pop(0)));
    }
    (events, arbiter)
}

fn decode(decoder: &mut Decoder, recording: &Recording, index: usize, message: &mut Message) {
    decoder.decode(recording.datagram(index).unwrap(), message).unwrap();
}

#[test]
fn the_files_split_into_the_known_messages() {
    let Some(feed) = crate::common::moex() else { return };
    let kinds = |r: &Recording| {
        let mut kinds = HashMap::new();
        r.datagrams.iter().for_each(|d| *kinds.entry(format!("{:?}", d.kind)).or_insert(0) += 1);
        kinds
    };
    let [a, b] = &feed.increments;
    assert_eq!((a.datagrams.len(), b.datagrams.len()), (8_101, 8_088));
    let ends = |r: &Recording| (r.datagrams[0].msg_seq_num, r.datagrams.last().unwrap().msg_seq_num);
    assert_eq!((ends(a), ends(b)), ((482_727, 490_827), (482_751, 490_838)));
    for channel in [a, b] {
        assert!(channel.datagrams.windows(2).all(|d| d[1].msg_seq_num == d[0].msg_seq_num + 1));
    }
    let expected = [("Snapshot", 7_848), ("SessionStatus", 733), ("SequenceReset", 733)];
    assert_eq!(kinds(&feed.snapshots), expected.map(|(k, n)| (k.to_string(), n)).into());
    for recording in [a, b, &feed.snapshots] {
        assert_eq!(recording.iter().map(|(_, bytes)| bytes.len()).sum::<usize>(), recording.bytes.len());
        assert!(recording.len_bytes_max() <= 428, "{}", recording.len_bytes_max());
    }
    assert_eq!(feed.instruments.len(), 4);
}

#[test]
fn common_messages_differ_in_sending_time_only() {
    let Some(feed) = crate::common::moex() else { return };
    let mut decoder = feed.decoder();
    let [a, b] = &feed.increments;
    let at: HashMap<u32, usize> = b.datagrams.iter().enumerate().map(|(i, d)| (d.msg_seq_num, i)).collect();
    let (mut one, mut other) = (Message::new(), Message::new());
    let mut common = 0;
    for (i, datagram) in a.datagrams.iter().enumerate() {
        let Some(&j) = at.get(&datagram.msg_seq_num) else { continue };
        decode(&mut decoder, a, i, &mut one);
        decode(&mut decoder, b, j, &mut other);
        other.sending_time = one.sending_time;
        assert_eq!(one, other);
        common += 1;
        let peeked = decoder.peek_sequence(a.datagram(i).unwrap(), &mut other);
        assert_eq!(peeked, Ok(datagram.msg_seq_num));
    }
    assert_eq!(common, 8_077);
}

#[test]
fn the_channels_merge_without_a_gap() {
    let Some(feed) = crate::common::moex() else { return };
    let (events, arbiter) = arbitrate(&feed, &arrivals(&feed, || false), 482_727);
    assert_eq!(events.len(), 8_112);
    assert!(events.iter().all(|e| matches!(e, Event::Message { .. })));
    let counts = arbiter.counts();
    assert_eq!(counts.received, [8_101, 8_088]);
    assert_eq!((counts.delivered, counts.duplicates, counts.lost), (8_112, 8_077, 0));

    let mut decoder = feed.decoder();
    let mut message = Message::new();
    let mut entries = 0;
    let mut last: HashMap<u64, u32> = HashMap::new();
    for event in &events {
        let Event::Message { item: (c, i), sequence, .. } = *event else { unreachable!() };
        decode(&mut decoder, &feed.increments[c], i, &mut message);
        assert_eq!((message.kind, u64::from(message.msg_seq_num)), (MessageKind::Increment, sequence));
        for entry in &message.entries {
            let previous = last.insert(entry.security_id.unwrap(), entry.rpt_seq);
            assert!(previous.is_none_or(|p| p + 1 == entry.rpt_seq), "RptSeq breaks at {sequence}");
            assert!(matches!(entry.action, Action::New | Action::Change | Action::Delete));
            assert!(matches!(entry.entry_type, EntryType::Bid | EntryType::Offer | EntryType::Trade), "{entry:?}");
        }
        entries += message.entries.len();
    }
    assert_eq!(entries, 22_117);
}

/// Merges increments and snapshots into one stream: a snapshot comes after the increments that it
/// contains.
struct Replay {
    books: FortsBooks,
    decoder: Decoder,
    /// Snapshots equal to their book, by instrument.
    equal: HashMap<u64, usize>,
    outcomes: HashMap<String, usize>,
    stale_seen: HashSet<u64>,
}

impl Replay {
    fn new(feed: &MoexFeed) -> Self {
        Self {
            books: FortsBooks::new(BooksSpec::default()),
            decoder: feed.decoder(),
            equal: HashMap::new(),
            outcomes: HashMap::new(),
            stale_seen: HashSet::new(),
        }
    }

    fn run(&mut self, feed: &MoexFeed, events: &[Event<Item>]) {
        let mut message = Message::new();
        let mut events = events.iter().peekable();
        for i in 0..feed.snapshots.datagrams.len() {
            if feed.snapshots.datagrams[i].kind != MessageKind::Snapshot {
                continue;
            }
            let mut snapshot = Message::new();
            decode(&mut self.decoder, &feed.snapshots, i, &mut snapshot);
            let upto = u64::from(snapshot.last_msg_seq_num_processed);
            while let Some(event) = events.next_if(|e| first_of(e) <= upto) {
                self.step(feed, event, &mut message);
            }
            let was = self.books.index_of(snapshot.security_id.unwrap()).map(|at| self.books.books()[at].trust());
            let (at, outcome) = self.books.apply_snapshot(&snapshot).unwrap();
            *self.outcomes.entry(format!("{outcome:?}")).or_default() += 1;
            if outcome == SnapshotOutcome::Equal {
                *self.equal.entry(snapshot.security_id.unwrap()).or_default() += 1;
            }
            if outcome == SnapshotOutcome::Recovered {
                assert_eq!(self.books.books()[at].trust(), Trust::Live);
                assert!(was.is_none_or(|was| was != Trust::Live));
            }
        }
    }

    /// Equal snapshots of the instruments that have increments.
    fn equal_of_changing(&mut self, feed: &MoexFeed, events: &[Event<Item>]) -> usize {
        let mut message = Message::new();
        let mut changing = HashSet::new();
        for event in events {
            if let Event::Message { item: (c, i), .. } = *event {
                decode(&mut self.decoder, &feed.increments[c], i, &mut message);
                changing.extend(message.entries.iter().filter_map(|e| e.security_id));
            }
        }
        changing.iter().filter_map(|id| self.equal.get(id)).sum()
    }

    fn step(&mut self, feed: &MoexFeed, event: &Event<Item>, message: &mut Message) {
        match *event {
            Event::Message { item: (c, i), .. } => {
                decode(&mut self.decoder, &feed.increments[c], i, message);
                for entry in &message.entries {
                    let (at, outcome) = self.books.apply_entry(message.msg_seq_num, entry).unwrap();
                    if outcome == EntryOutcome::Held {
                        assert_eq!(self.books.books()[at].trust(), Trust::Stale);
                        self.stale_seen.insert(self.books.books()[at].security_id());
                    }
                }
            }
            Event::Gap { first, count, .. } => {
                self.books.gap(first + count - 1);
                assert!(self.books.books().iter().all(|b| b.trust() != Trust::Live), "no book is trusted after a gap");
            }
        }
    }
}

fn first_of(event: &Event<Item>) -> u64 {
    match *event {
        Event::Message { sequence, .. } => sequence,
        Event::Gap { first, .. } => first,
    }
}

#[test]
fn the_books_equal_every_later_snapshot() {
    let Some(feed) = crate::common::moex() else { return };
    let (events, _) = arbitrate(&feed, &arrivals(&feed, || false), 482_727);
    let mut replay = Replay::new(&feed);
    replay.run(&feed, &events);
    // Eleven instruments, two of them without increments; three snapshots lie beyond the last
    // increment.
    let expected = [("Recovered", 11), ("Equal", 7_834), ("Ahead", 3)];
    assert_eq!(replay.outcomes, expected.map(|(k, n)| (k.to_string(), n)).into());
    assert_eq!(replay.equal_of_changing(&feed, &events), 6_370);
    let counts = replay.books.counts();
    assert_eq!((counts.breaks, counts.different, counts.applied + counts.held), (0, 0, 22_117));
}

#[test]
fn what_both_channels_lose_is_reported_and_recovered() {
    let Some(feed) = crate::common::moex() else { return };
    for seed in 1..=5u64 {
        // One datagram in ten of each channel is lost, independently.
        let mut state = seed;
        let drops = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % 10 == 0
        };
        let arrived = arrivals(&feed, drops);
        let came: HashSet<u32> = arrived.iter().map(|&(c, i)| feed.increments[c].datagrams[i].msg_seq_num).collect();
        let (events, arbiter) = arbitrate(&feed, &arrived, 482_727);

        // The gaps are exactly the numbers missing on both channels, up to the point that both have
        // passed.
        let mut next = 482_727;
        for event in &events {
            assert_eq!(first_of(event), next);
            match *event {
                Event::Message { .. } => next += 1,
                Event::Gap { first, count, cause } => {
                    assert_eq!(cause, GapCause::BothPassed);
                    assert!((first..first + count).all(|s| !came.contains(&(s as u32))));
                    next += count;
                }
            }
        }
        assert!(arbiter.counts().lost > 40, "{:?}", arbiter.counts());
        assert!(next > 490_800, "{next}");

        let mut replay = Replay::new(&feed);
        replay.run(&feed, &events);
        assert_eq!(replay.outcomes.get("Different"), None, "a live book never differs from a snapshot");
        assert!(replay.outcomes["Recovered"] > 11 && replay.outcomes["Equal"] > 7_000, "{:?}", replay.outcomes);
        assert!(!replay.stale_seen.is_empty() && replay.books.counts().breaks > 0);
    }
}
