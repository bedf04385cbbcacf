//! The exchanges of either verb, from both ends, and their times.

use std::net::SocketAddr;
use std::time::Instant;

use verbline_verbs::connection::{ConnectOptions, Connection, Listener, resolve};
use verbline_verbs::{Access, InitSpec, Provider, rdma::Remote};

use crate::side::{BURST, Side};
use crate::{Outcome, PATIENCE, Verb};

/// The parameters of a measurement, chosen by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) verb: Verb,
    /// Messages one way, instead of round trips.
    pub(crate) rate: bool,
    pub(crate) size_bytes: u32,
    pub(crate) exchanges: u32,
    /// This end's ACK timeout, in the code of ibv_modify_qp(3).
    pub(crate) timeout: u8,
}

/// Half a second: a machine may keep one of the ends from running for a while.
pub(crate) const TIMEOUT: u8 = 17;

impl Terms {
    /// The same exchanges, rounded to whole lists.
    pub(crate) fn in_lists(self) -> Terms {
        Terms { exchanges: self.exchanges.next_multiple_of(BURST as u32), ..self }
    }
}

/// Round trips in nanoseconds, sorted.
pub(crate) struct Times(Vec<u64>);

impl Times {
    fn new(mut round_trips_ns: Vec<u64>) -> Times {
        round_trips_ns.sort_unstable();
        Times(round_trips_ns)
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn half_trip_us(&self, quantile: f64) -> f64 {
        let last = self.0.len() - 1;
        self.0[(last as f64 * quantile) as usize] as f64 / 2000.0
    }
}

/// The client.
pub(crate) fn measure(provider: Provider, server: SocketAddr, terms: Terms) -> Outcome<Times> {
    let (mut side, mut connection, peer) = connect(provider, server, terms)?;
    let times = match terms.verb {
        Verb::Send => start_sends(&mut side, &mut connection, terms),
        Verb::Write => start_writes(&mut side, &mut connection, peer, terms),
    }?;
    connection.disconnect(&mut side.qp)?;
    Ok(Times::new(times))
}

/// A client that connects and leaves.
#[cfg(test)]
pub(crate) fn leave(provider: Provider, server: SocketAddr, terms: Terms) -> Outcome<()> {
    let (mut side, connection, _) = connect(provider, server, terms)?;
    Ok(connection.disconnect(&mut side.qp)?)
}

pub(crate) fn connect(provider: Provider, server: SocketAddr, terms: Terms) -> Outcome<(Side, Connection, Remote)> {
    let route = resolve(provider, server, None, PATIENCE)?;
    let mut side = Side::new(provider, route.device_name(), terms.size_bytes)?;
    let private_data = hello(terms, side.incoming());
    let connecting = route.connect(&mut side.qp, &options(private_data, terms.timeout))?;
    side.post_receives()?;
    let connection = connecting.finish(&mut side.qp, PATIENCE)?;
    let (_, peer) = greeted(connection.private_data())?;
    Ok((side, connection, peer))
}

/// The server: serves one client. Returns the client's parameters.
pub(crate) fn serve(provider: Provider, listener: &mut Listener) -> Outcome<Terms> {
    let request = loop {
        if let Some(request) = listener.next(PATIENCE)? {
            break request;
        }
    };
    let (terms, peer) = greeted(request.private_data())?;
    let mut side = Side::new(provider, request.device_name(), terms.size_bytes)?;
    side.qp.to_init(&InitSpec { port: request.port(), access: access(), ..InitSpec::default() })?;
    side.post_receives()?;
    let private_data = hello(terms, side.incoming());
    let mut connection = request.accept(&mut side.qp, &options(private_data, terms.timeout))?;
    match (terms.rate, terms.verb) {
        (true, Verb::Send) => take_sends(&mut side, &mut connection, terms),
        (true, Verb::Write) => side.poll_until_left(&mut connection),
        (false, Verb::Send) => answer_sends(&mut side, &mut connection, terms),
        (false, Verb::Write) => answer_writes(&mut side, &mut connection, peer, terms),
    }?;
    // The last answer is in flight until the client leaves.
    if !terms.rate {
        connection.wait_disconnected(PATIENCE)?;
    }
    Ok(terms)
}

/// A round trip is the time from one departure to the next: the clock is read while the message is
/// in flight.
fn start_sends(side: &mut Side, connection: &mut Connection, terms: Terms) -> Outcome<Vec<u64>> {
    let mut times = Vec::with_capacity(terms.exchanges as usize);
    let mut packet = side.message(terms.size_bytes)?;
    let mut departed = None;
    for _ in 0..terms.exchanges {
        side.send(packet)?;
        let now = Instant::now();
        times.extend(departed.replace(now).map(|before| (now - before).as_nanos() as u64));
        side.replenish()?;
        packet = side.next_message(connection)?;
    }
    times.extend(departed.map(|before| before.elapsed().as_nanos() as u64));
    Ok(times)
}

fn answer_sends(side: &mut Side, connection: &mut Connection, terms: Terms) -> Outcome<()> {
    for _ in 0..terms.exchanges {
        let packet = side.next_message(connection)?;
        side.send(packet)?;
        side.replenish()?;
    }
    Ok(())
}

/// Takes messages one way, and polls until their sender has the last acknowledgement and leaves.
fn take_sends(side: &mut Side, connection: &mut Connection, terms: Terms) -> Outcome<()> {
    side.take(terms.exchanges, connection)?;
    side.poll_until_left(connection)
}

fn start_writes(side: &mut Side, connection: &mut Connection, peer: Remote, terms: Terms) -> Outcome<Vec<u64>> {
    let mut times = Vec::with_capacity(terms.exchanges as usize);
    let mut departed = None;
    for number in 1..=u64::from(terms.exchanges) {
        side.write(number, peer)?;
        let now = Instant::now();
        times.extend(departed.replace(now).map(|before| (now - before).as_nanos() as u64));
        side.watch_for(number, connection)?;
    }
    times.extend(departed.map(|before| before.elapsed().as_nanos() as u64));
    Ok(times)
}

fn answer_writes(side: &mut Side, connection: &mut Connection, peer: Remote, terms: Terms) -> Outcome<()> {
    for number in 1..=u64::from(terms.exchanges) {
        side.watch_for(number, connection)?;
        side.write(number, peer)?;
    }
    Ok(())
}

/// The peer's access to memory here.
fn access() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE
}

fn options(private_data: Vec<u8>, timeout: u8) -> ConnectOptions {
    ConnectOptions { private_data, timeout: Some(timeout), access: access(), ..ConnectOptions::default() }
}

/// The length of a greeting: verb (with [`RATE`]), bytes, exchanges, R_Key, address.
const HELLO_BYTES: usize = 24;

/// Flag beside the verb: messages one way.
const RATE: u32 = 1 << 8;

fn hello(terms: Terms, incoming: Remote) -> Vec<u8> {
    let verb = terms.verb as u32 | if terms.rate { RATE } else { 0 };
    let words = [verb, terms.size_bytes, terms.exchanges, incoming.rkey];
    words.iter().flat_map(|word| word.to_be_bytes()).chain(incoming.addr.to_be_bytes()).collect()
}

fn greeted(hello: &[u8]) -> Outcome<(Terms, Remote)> {
    // A connection manager may pad private data.
    let hello: &[u8; HELLO_BYTES] =
        hello.first_chunk().ok_or("the peer is no latency program: its greeting is short")?;
    let word = |at: usize| u32::from_be_bytes([hello[at], hello[at + 1], hello[at + 2], hello[at + 3]]);
    let verb = match word(0) & !RATE {
        0 => Verb::Send,
        1 => Verb::Write,
        other => return Err(format!("the peer is no latency program: it asks for verb {other}").into()),
    };
    let size_bytes = crate::size(&word(4).to_string())?;
    let addr = u64::from(word(16)) << 32 | u64::from(word(20));
    let rate = word(0) & RATE != 0;
    Ok((Terms { verb, rate, size_bytes, exchanges: word(8), timeout: TIMEOUT }, Remote { addr, rkey: word(12) }))
}
