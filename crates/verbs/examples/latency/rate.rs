//! Messages one way, as fast as possible, as measured by perftest's `ib_send_bw` and `ib_write_bw`.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use verbline_verbs::Provider;

use crate::exchange::{Terms, connect};
use crate::side::BURST;
use crate::{Outcome, Verb};

/// The number of messages one way, and the time until the last was acknowledged.
#[derive(Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) messages: u32,
    pub(crate) took: Duration,
}

impl Rate {
    pub(crate) fn messages_per_s(self) -> f64 {
        f64::from(self.messages) / self.took.as_secs_f64()
    }
}

/// The client: posts whole lists ([`Terms::in_lists`]), and keeps the send queue full of them.
pub(crate) fn measure(provider: Provider, server: SocketAddr, terms: Terms) -> Outcome<Rate> {
    let (mut side, mut connection, peer) = connect(provider, server, terms)?;
    let began = Instant::now();
    for _ in 0..terms.exchanges as usize / BURST {
        side.wait_for_room(&mut connection)?;
        match terms.verb {
            Verb::Send => side.send_list(),
            Verb::Write => side.write_list(peer),
        }?;
    }
    side.wait_for_the_last(&mut connection)?;
    let took = began.elapsed();
    connection.disconnect(&mut side.qp)?;
    Ok(Rate { messages: terms.exchanges, took })
}
