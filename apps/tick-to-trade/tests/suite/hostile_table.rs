//! The table of docs/hostile-datagrams.md: in each row, a false datagram is put among true ones on
//! channel A, and its cost asserted.
//!
//! Framing and arbitration like in the trader's arbiter stage, bytes in and messages out.

use proptest::prelude::*;
use tick_to_trade::arbitration::{Arbiter, ArbiterCounts, ArbiterSpec, Channel, Event, Offer};
use tick_to_trade::framing::{FortsFrames, FrameError, Framed, Frames, MoldFrames};
use tick_to_trade::itch::encode::{self, Header};
use tick_to_trade::mold::{self, Session, Writer};
use tick_to_trade::stages::{self, Tally};
use verbline::prelude::{Loader, Machine, Registry};
use verbline::testing::StageTest;

const SESSION: Session = *b"VERBLINE00";
const OTHER: Session = *b"VERBLINE99";

/// Frames on each channel, two messages each, numbers from 1.
const FRAMES: u64 = 200;
const MESSAGES: u64 = 2;

/// A true frame: each message carries its own number as its timestamp.
fn frame(session: &Session, first: u64, count: u64) -> Vec<u8> {
    framed(session, first, first..first + count)
}

/// A frame numbered from `first`. Its messages are true if `times` are their numbers.
fn framed(session: &Session, first: u64, times: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut bytes = vec![0; 1500];
    let mut writer = Writer::new(&mut bytes, session, first).expect("room for a header");
    for timestamp_ns in times {
        let header = Header { stock_locate: 0, tracking_number: 0, timestamp_ns };
        writer.push_with(|out| encode::system_event(out, header, b'O')).expect("room for a message");
    }
    let len = writer.finish();
    bytes.truncate(len);
    bytes
}

/// A frame of messages that are not the feed's.
fn forged(session: &Session, first: u64, count: u64) -> Vec<u8> {
    framed(session, first, (0..count).map(|_| 0))
}

fn heartbeat(session: &Session, next: u64) -> Vec<u8> {
    frame(session, next, 0)
}

fn end_of_session(session: &Session, next: u64) -> Vec<u8> {
    let mut bytes = vec![0; mold::HEADER_LEN_BYTES];
    Writer::new(&mut bytes, session, next).expect("room for a header").finish_session();
    bytes
}

/// The trader's stages in front of the book.
struct Trader {
    frames: Frames,
    arbiter: Arbiter<Vec<u8>>,
    refused: Vec<FrameError>,
    /// The number of each message delivered, and whether it was the true one.
    delivered: Vec<(u64, bool)>,
    gaps: Vec<(u64, u64)>,
}

impl Trader {
    fn new() -> Trader {
        let spec = ArbiterSpec { window: 256, timeout_ns: 1_000_000, first: Some(1), ..ArbiterSpec::default() };
        Trader {
            frames: Frames::Mold(MoldFrames::new(Some(SESSION))),
            arbiter: Arbiter::new(spec),
            refused: Vec::new(),
            delivered: Vec::new(),
            gaps: Vec::new(),
        }
    }

    fn receive(&mut self, channel: Channel, datagram: Vec<u8>) {
        match self.frames.frame(&datagram) {
            Err(error) => self.refused.push(error),
            Ok(Framed { sequence, count: 0 }) => self.arbiter.heartbeat(channel, sequence),
            Ok(Framed { sequence, count }) => match self.arbiter.offer(channel, sequence, count, datagram, 0) {
                Offer::Ready { item, skip } => self.deliver(&item, skip),
                Offer::Held | Offer::Old(_) | Offer::Refused(_) => {}
            },
        }
        while let Some(event) = self.arbiter.pop(0) {
            match event {
                Event::Message { item, skip, .. } => self.deliver(&item, skip),
                Event::Gap { first, count, .. } => self.gaps.push((first, count)),
            }
        }
    }

    fn deliver(&mut self, datagram: &[u8], skip: u32) {
        let packet = mold::Packet::parse(datagram).expect("it was framed");
        for (index, message) in packet.messages().enumerate().skip(skip as usize) {
            let number = packet.sequence() + index as u64;
            let is_true = message.len() == 12 && message[5..11] == number.to_be_bytes()[2..];
            self.delivered.push((number, is_true));
        }
    }
}

/// Both channels carry everything, B a frame behind A; `hostile` comes on A before its frame `at`,
/// or in place of it.
fn attacked(at: u64, replaces: bool, hostile: &[Vec<u8>]) -> Trader {
    let mut trader = Trader::new();
    let number = |index: u64| 1 + index * MESSAGES;
    for index in 0..=FRAMES {
        if index == at {
            hostile.iter().for_each(|datagram| trader.receive(Channel::A, datagram.clone()));
        }
        if index < FRAMES && !(index == at && replaces) {
            trader.receive(Channel::A, frame(&SESSION, number(index), MESSAGES));
        }
        if index > 0 {
            trader.receive(Channel::B, frame(&SESSION, number(index - 1), MESSAGES));
        }
    }
    trader
}

/// The false datagram's position: before A's hundredth frame, whose first message is `NEXT`.
const AT: u64 = 100;
const NEXT: u64 = 1 + AT * MESSAGES;

/// Asserts that every true message outside `false_ones` was delivered, in order and once, and that
/// forged ones were delivered for `false_ones`.
#[track_caller]
fn costs(trader: &Trader, false_ones: std::ops::Range<u64>) -> ArbiterCounts {
    let wanted: Vec<_> = (1..=FRAMES * MESSAGES).map(|number| (number, !false_ones.contains(&number))).collect();
    assert_eq!(trader.delivered, wanted);
    assert_eq!(trader.gaps, []);
    *trader.arbiter.counts()
}

const NOTHING: std::ops::Range<u64> = 0..0;

#[test]
fn wrong_session() {
    for datagram in [forged(&OTHER, NEXT, 2), heartbeat(&OTHER, 1 << 40), end_of_session(&OTHER, NEXT)] {
        let trader = attacked(AT, false, &[datagram]);
        costs(&trader, NOTHING);
        assert_eq!(trader.refused, [FrameError::WrongSession]);
    }
}

#[test]
fn replayed() {
    // A long stretch of the feed's own frames, again.
    let again: Vec<_> = (0..AT).map(|index| frame(&SESSION, 1 + index * MESSAGES, MESSAGES)).collect();
    let counts = costs(&attacked(AT, false, &again), NOTHING);
    assert_eq!((counts.duplicates, counts.late), (FRAMES * MESSAGES + AT * MESSAGES, 0));
}

#[test]
fn far_ahead() {
    for ahead in [256, 300, 1 << 20, 1 << 31, 1 << 40, u64::MAX - NEXT - 2] {
        let trader = attacked(AT, false, &[forged(&SESSION, NEXT + ahead, 2)]);
        let counts = costs(&trader, NOTHING);
        assert_eq!(counts.lost, 0, "{ahead}");
        // The false datagram is held unless refused, and nothing else is.
        assert!(trader.arbiter.held() <= 1, "{ahead}");
    }
}

#[test]
fn a_little_ahead() {
    for ahead in 1..256 {
        let trader = attacked(AT, false, &[forged(&SESSION, NEXT + ahead, 2)]);
        costs(&trader, NOTHING);
    }
}

#[test]
fn far_behind() {
    for first in [0, 1, NEXT - 150, NEXT - 4] {
        costs(&attacked(AT, false, &[forged(&SESSION, first, 2)]), NOTHING);
    }
}

#[test]
fn wrapped() {
    // Two messages from the greatest 64-bit number, from the one before, and the last two that are
    // possible.
    for (first, exceeds) in [(u64::MAX, true), (u64::MAX - 1, true), (u64::MAX - 2, false)] {
        let trader = attacked(AT, false, &[forged(&SESSION, first, 2)]);
        costs(&trader, NOTHING);
        assert_eq!(trader.refused.len(), usize::from(exceeds), "{first}");
    }
}

#[test]
fn truncated() {
    let whole = frame(&SESSION, NEXT, MESSAGES);
    for len in 0..whole.len() {
        // In place of the true frame: B's copy stands in.
        let trader = attacked(AT, true, &[whole[..len].to_vec()]);
        costs(&trader, NOTHING);
        assert_eq!(trader.refused, [FrameError::Malformed], "{len} bytes");
    }
    let mut longer = whole;
    longer.push(0);
    costs(&attacked(AT, true, &[longer]), NOTHING);
}

#[test]
fn more_messages_than_its_bytes_can_hold() {
    // 200 messages of 0 bytes, at the next number.
    let mut bytes = vec![0; 1500];
    let mut writer = Writer::new(&mut bytes, &SESSION, NEXT).expect("room for a header");
    (0..200).for_each(|_| writer.push(b"").expect("room for nothing"));
    let len = writer.finish();
    bytes.truncate(len);
    let trader = attacked(AT, false, &[bytes]);
    costs(&trader, NOTHING);
    assert_eq!(trader.refused, [FrameError::Malformed]);
}

#[test]
fn forged_end_of_session() {
    for next in [0, NEXT, NEXT + 100, NEXT + 1_000_000, u64::MAX] {
        let counts = costs(&attacked(AT, false, &[end_of_session(&SESSION, next)]), NOTHING);
        assert_eq!((counts.lost, counts.refused), (0, 0), "{next}");
    }
}

#[test]
fn forged_heartbeat() {
    for next in [NEXT + 1, NEXT + 255, NEXT + 100_000, 1 << 40] {
        costs(&attacked(AT, false, &[heartbeat(&SESSION, next)]), NOTHING);
    }
}

#[test]
fn forged_in_line() {
    // It cannot be told from the true frame: it replaces the numbers that it carries, and no
    // others.
    costs(&attacked(AT, false, &[forged(&SESSION, NEXT, 2)]), NEXT..NEXT + 2);
    costs(&attacked(AT, false, &[forged(&SESSION, NEXT, 5)]), NEXT..NEXT + 5);
    costs(&attacked(AT, false, &[forged(&SESSION, NEXT - 1, 2)]), NEXT..NEXT + 1);
}

#[test]
fn a_false_preamble() {
    let Some(feed) = crate::common::moex() else { return };
    let mut frames = Frames::Forts(Box::new(FortsFrames::new(feed.decoder())));
    let recording = &feed.increments[0];
    for (datagram, fast) in recording.iter().take(500) {
        let framed = |number: u32| [&number.to_le_bytes(), fast].concat();
        let own = Framed { sequence: datagram.msg_seq_num.into(), count: 1 };
        assert_eq!(frames.frame(&framed(datagram.msg_seq_num)), Ok(own));
        for bit in 0..32 {
            let bytes = framed(datagram.msg_seq_num ^ 1 << bit);
            assert_eq!(frames.frame(&bytes), Err(FrameError::FalsePreamble));
        }
        assert_eq!(frames.frame(&framed(7)[..3]), Err(FrameError::Malformed));
        assert_eq!(frames.frame(&framed(7)[..4]), Ok(Framed { sequence: 7, count: 0 }), "a heartbeat");
        assert_eq!(frames.frame(&framed(7)[..6]), Err(FrameError::Malformed));
    }
}

/// How many are sent there.
const INCREMENTS: usize = 500;

#[test]
fn an_increment_on_the_snapshots_channel() {
    let Some(feed) = crate::common::moex() else { return };
    let (mut registry, tally) = (Registry::new("tick-to-trade"), Tally::default());
    stages::register(&mut registry, &tally);
    // Straight to the book, as the port of the snapshots' channel leads there.
    let plan = r#"
        device.nic0 = { provider = "soft" }
        pool.packets = { device = "nic0", packets = 4_096, data_bytes = 512, pages = "4KiB" }
        lcore.trader = { cpu = "allowed:0" }
        injector.hostile = { to = "stage.book", pool = "packets", depth = 4 }
        stage.book = { use = "forts-book", lcore = "trader", pool = "packets", out.changed = "drop" }
        "#;
    let dir = format!("feed.dir={}", crate::common::dir().display());
    let loaded = Loader::new(registry.catalog(), Machine::detect()).sets([dir]).load_str("hostile.toml", plan);
    let plan = loaded.unwrap_or_else(|faults| panic!("{faults}"));
    let mut book = StageTest::open(&plan, &registry, "book").expect("it can be made");
    for (datagram, fast) in feed.increments[0].iter().take(INCREMENTS) {
        let number = datagram.msg_seq_num.to_le_bytes();
        let packet = book.packet("injector.hostile", &[&number, fast].concat());
        book.process([packet]);
    }
    let report = book.finish();
    let drops: Vec<_> = report.drops.iter().map(|drop| (&*drop.place, &*drop.reason, drop.packets)).collect();
    assert_eq!(drops, [("stage.book", "not_in_order", INCREMENTS as u64)]);
    let tallies = tally.lock();
    let forts = tallies.forts.get("book").expect("the book has gone");
    assert_eq!((forts.increments, forts.entries, forts.told, forts.untold), (0, 0, 0, 0), "no book heard of them");
}

#[test]
fn two_that_agree() {
    // Nothing distinguishes this from a feed that went on: the stream moves, as the table
    // documents.
    let first = NEXT + 10_000;
    let trader = attacked(AT, false, &[forged(&SESSION, first, 2), forged(&SESSION, first + 2, 2)]);
    assert_eq!(trader.gaps.len(), 1, "the hole that they claim is given up");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1024) })]

    /// Any bytes in place of any datagram of A: all other messages are delivered in order.
    #[test]
    fn any_bytes(at in 1..FRAMES - 1, bytes in prop::collection::vec(any::<u8>(), 0..200), true_header in 0usize..=20) {
        let mut bytes = bytes;
        // Keeps a part of the true header, so that later checks are reached.
        let header = &frame(&SESSION, 1 + at * MESSAGES, MESSAGES)[..true_header.min(bytes.len())];
        bytes[..header.len()].copy_from_slice(header);
        let trader = attacked(at, true, &[bytes]);
        check(&trader, at)?;
    }

    /// Any byte of any datagram of A changed.
    #[test]
    fn any_change(at in 1..FRAMES - 1, place in 0usize..48, change in 1u8..) {
        let mut bytes = frame(&SESSION, 1 + at * MESSAGES, MESSAGES);
        bytes[place] ^= change;
        let trader = attacked(at, true, &[bytes]);
        check(&trader, at)?;
    }
}

/// Asserts that every number was delivered, with false messages only where a datagram of 200 bytes
/// in place of the frame `at` could put them.
fn check(trader: &Trader, at: u64) -> Result<(), TestCaseError> {
    let numbers: Vec<_> = trader.delivered.iter().map(|(number, _)| *number).collect();
    prop_assert_eq!(numbers, Vec::from_iter(1..=FRAMES * MESSAGES));
    let own = 1 + at * MESSAGES;
    let most = own + 200 / 14;
    for (number, is_true) in &trader.delivered {
        prop_assert!(*is_true || (own..most).contains(number), "message {} is false", number);
    }
    prop_assert_eq!(&trader.gaps, &vec![]);
    Ok(())
}
