//! The book alone: the test is its feed, and the exchange that answers its requests.

use std::time::Duration;

use verbline::testing::StageTest;

use super::*;
use crate::TickToTrade;
use crate::itch::encode::{self, Header};
use crate::mold::Writer;
use crate::stages::alone::alone;

struct Rig(StageTest);

impl Rig {
    /// A book that has missed message 2 of three, and has asked for it.
    fn behind() -> Rig {
        let mut rig = Rig(alone(&TickToTrade::default(), "book", &["stage.book.params.first=1"]));
        rig.feed(1);
        rig.feed(3);
        assert_eq!(rig.0.sent("request").len(), 1, "message 2");
        rig
    }

    fn packet(&mut self, port: &str, sequence: u64) -> Packet {
        let mut bytes = [0; 100];
        let mut frame = Writer::new(&mut bytes, b"VERBLINE00", sequence).expect("room for a header");
        let header = Header { stock_locate: 0, tracking_number: 0, timestamp_ns: sequence };
        frame.push_with(|out| encode::system_event(out, header, b'O')).expect("room for a message");
        let len_bytes = frame.finish();
        self.0.packet(port, &bytes[..len_bytes])
    }

    fn feed(&mut self, sequence: u64) {
        let mut packet = self.packet("port.md_a", sequence);
        Mark::put_next(&mut packet);
        self.0.process([packet]);
    }

    fn answer(&mut self, sequence: u64) {
        let packet = self.packet("port.recovery", sequence);
        self.0.process([packet]);
    }

    /// Lets time pass, as the lcore of a drain does.
    fn pass_ms(&mut self, time_ms: u64) {
        for _ in 0..time_ms {
            self.0.advance(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_stopped_book_waits_for_its_answer() {
    let mut rig = Rig::behind();
    assert!(!rig.0.awaits_packets(), "the run goes on");
    rig.0.stop();
    assert!(rig.0.awaits_packets());
    rig.pass_ms(400);
    rig.feed(4);
    rig.pass_ms(400);
    assert!(rig.0.awaits_packets(), "the feed goes on, and so does the exchange");
    rig.answer(2);
    assert!(!rig.0.awaits_packets());
}

/// Regression: a trader whose exchange was gone as it stopped waited for its answers for all of its
/// drain, and then said that the drain was too short.
#[test]
fn a_stopped_book_does_not_wait_for_an_exchange_that_is_gone() {
    let mut rig = Rig::behind();
    rig.0.stop();
    rig.pass_ms(700);
    assert!(!rig.0.awaits_packets());
}
