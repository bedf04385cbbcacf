//! The floor: the time of one cache line from core to core, with nothing around it.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::pair::Partner;

#[repr(align(128))]
#[derive(Debug, Default)]
struct Line(AtomicU64);

/// Two threads on two cores, with a line for each direction.
#[derive(Debug)]
pub struct LineExchange {
    ping: Arc<Line>,
    pong: Arc<Line>,
    turn: u64,
    _partner: Partner,
}

impl LineExchange {
    /// Starts the partner, which answers every turn.
    pub fn start() -> LineExchange {
        let (ping, pong) = (Arc::new(Line::default()), Arc::new(Line::default()));
        let (asked, answer) = (Arc::clone(&ping), Arc::clone(&pong));
        let mut last = 0;
        let partner = Partner::start(move || {
            // Acquire: pairs with the Release store of `round_trip`, as a receiver needs to read a
            // payload.
            let turn = asked.0.load(Ordering::Acquire);
            if turn == last {
                spin_loop();
                return;
            }
            last = turn;
            // Release: pairs with the Acquire load of `round_trip`.
            answer.0.store(turn, Ordering::Release);
        });
        LineExchange { ping, pong, turn: 0, _partner: partner }
    }

    /// Sends one line there and one back.
    pub fn round_trip(&mut self) {
        self.turn += 1;
        // Release and Acquire: pair with the partner's.
        self.ping.0.store(self.turn, Ordering::Release);
        while self.pong.0.load(Ordering::Acquire) != self.turn {
            spin_loop();
        }
    }
}
