//! A short feed, its server, and a follower that has lost a part of the feed.

use tick_to_trade::book::BookSpec;
use tick_to_trade::generator::{Generator, GeneratorSpec};
use tick_to_trade::mold::Packet;
use tick_to_trade::recovery::{Follower, FollowerSpec, Services, ServicesSpec};

/// The size of the buffer for an answer.
pub const ANSWER_LEN_BYTES: usize = 300;

const INSTRUMENTS: u16 = 3;
const FRAMES: usize = 60;
const MESSAGES: u16 = 2;
/// The frames that a follower has lost.
const LOST: std::ops::Range<usize> = 40..44;

pub struct Feed {
    /// The generator's state after the last frame.
    pub generator: Generator,
    frames: Vec<Vec<u8>>,
}

impl Feed {
    pub fn new() -> Feed {
        let mut generator = Generator::new(GeneratorSpec { seed: 7, instruments: INSTRUMENTS, live_orders: 20 });
        let frame = |at: usize| {
            let mut bytes = vec![0; 400];
            let frame = generator.write_frame(MESSAGES, at as u64, &mut bytes).expect("there is room");
            bytes.truncate(frame.len_bytes);
            bytes
        };
        let frames = (0..FRAMES).map(frame).collect();
        Feed { generator, frames }
    }

    fn packets(&self) -> impl Iterator<Item = Packet<'_>> {
        self.frames.iter().map(|frame| Packet::parse(frame).expect("it is MoldUDP64"))
    }

    /// A message of the feed, if it was sent.
    #[allow(dead_code, reason = "one target asks")]
    pub fn message(&self, sequence: u64) -> Option<&[u8]> {
        let at = usize::try_from(sequence.checked_sub(1)?).ok()?;
        let frame = self.frames.get(at / usize::from(MESSAGES))?;
        Packet::parse(frame).expect("it is MoldUDP64").messages().nth(at % usize::from(MESSAGES))
    }

    /// A server that has kept the whole feed.
    pub fn services(&self) -> Services {
        let mut services = Services::new(ServicesSpec { kept_messages: 128, orders_max: 64 });
        self.packets().for_each(|packet| services.keep(&packet));
        services
    }

    /// A follower that waits for the lost frames.
    #[allow(dead_code, reason = "one target follows")]
    pub fn behind_a_gap(&self) -> Follower {
        let mut follower = Follower::new(FollowerSpec {
            books: BookSpec { instruments: 4, orders: 200, levels_per_side: 128 },
            first: Some(1),
            held_messages: 64,
            request_messages: 4,
            retransmits: true,
            snapshots: true,
            gap_messages_max: 32,
            timeout_ns: 5_000,
            tries: 2,
            snapshot_timeout_ns: 5_000,
            rebuild_pause_ns: 2_000,
        });
        for (packet, at) in self.packets().zip(0..) {
            if !LOST.contains(&at) {
                follower.take(&packet, 0, 1, &mut |_, _, _, _| {});
            }
        }
        follower
    }
}
