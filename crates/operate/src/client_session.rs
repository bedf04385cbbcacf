//! One client of the server: what it has sent, what it has not taken yet, and how long that takes.
//!
//! Guarantees: a client holds [`INPUT_BYTES_MAX`] bytes and one answer at most. It is dropped
//! when a request takes longer than [`PATIENCE`] to arrive, an answer longer than that to be
//! taken, or when it asks nothing for [`IDLE_MAX`]. A client that asks more often than its grant
//! waits for it, and nobody else does.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::grant::Grant;
use crate::http;
use crate::listener::{PATIENCE, Socket};
use crate::protocol::{Ask, REQUEST_BYTES_MAX, Refusal, Request, refusal};
use crate::snapshot_cache::Told;

/// Without a request.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(60);

/// Bytes of what a client has sent and what is not answered yet.
const INPUT_BYTES_MAX: usize = 8192;

/// Requests at once, and the time in which one more is granted.
const REQUESTS_BURST: u32 = 20;
const REQUEST_EVERY: Duration = Duration::from_millis(20);

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// [`crate::protocol`].
    Lines,
    /// GET requests for the metrics and the page.
    Http,
}

/// What became of a look at a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Stays,
    Ends,
}

#[derive(Debug)]
pub(crate) struct Peer {
    socket: Socket,
    speaks: Speaks,
    input: Vec<u8>,
    output: Vec<u8>,
    written: usize,
    /// It ends once the output is taken.
    is_last: bool,
    /// The peer has closed its sending half.
    has_said_all: bool,
    /// Since when it has been doing what it does: idle, sending a request, taking an answer.
    since: Instant,
    grant: Grant,
}

impl Peer {
    pub(crate) fn new(socket: Socket, speaks: Speaks, now: Instant) -> Peer {
        Peer {
            socket,
            speaks,
            input: Vec::new(),
            output: Vec::new(),
            written: 0,
            is_last: false,
            has_said_all: false,
            since: now,
            grant: Grant::new(REQUESTS_BURST, REQUEST_EVERY, now),
        }
    }

    /// A client that is told why it is not served.
    pub(crate) fn refused(socket: Socket, speaks: Speaks, why: &Refusal, now: Instant) -> Peer {
        let mut peer = Peer::new(socket, speaks, now);
        let told = match speaks {
            Speaks::Lines => refusal(None, why),
            Speaks::Http => http::refusal(why),
        };
        (peer.output, peer.is_last) = (told, true);
        peer
    }

    /// Writes what can be written at once.
    pub(crate) fn bid_farewell(&mut self, now: Instant) {
        // It goes whether or not it was told.
        let _ = self.write(now);
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// What to wait for. A client that has an answer to take is not read from.
    pub(crate) fn wants(&self, now: Instant) -> PollFlags {
        if self.is_answering() {
            PollFlags::OUT
        } else if self.has_said_all || self.grant.ready_at() > now {
            PollFlags::empty()
        } else {
            PollFlags::IN
        }
    }

    /// When to look at it though nothing has happened.
    pub(crate) fn deadline(&self, now: Instant) -> Instant {
        let ends_at = self.since + if self.is_idle() { IDLE_MAX } else { PATIENCE };
        match self.grant.ready_at() {
            ready_at if ready_at > now && !self.is_answering() => ends_at.min(ready_at),
            _ => ends_at,
        }
    }

    /// Since when it has asked nothing; `None`: it is being served.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        self.is_idle().then_some(self.since)
    }

    /// Since when a request has been on its way that has not come whole; `None`: there is none.
    pub(crate) fn half_since(&self) -> Option<Instant> {
        let is_half = !self.input.is_empty() && !self.is_answering() && !self.has_request();
        is_half.then_some(self.since)
    }

    fn is_answering(&self) -> bool {
        self.written < self.output.len()
    }

    fn is_idle(&self) -> bool {
        self.input.is_empty() && !self.is_answering()
    }

    /// Moves it on: `ready` says what its socket is ready for.
    pub(crate) fn serve(&mut self, ready: PollFlags, told: &mut Told<'_>, now: Instant) -> Life {
        // A client that has hung up takes no answer.
        let ended = PollFlags::ERR | PollFlags::NVAL | PollFlags::HUP;
        if ready.intersects(ended) || self.advance(ready, told, now).is_err() {
            return Life::Ends;
        }
        let is_done = !self.is_answering() && (self.is_last || (self.has_said_all && !self.has_request()));
        let is_late = self.since + if self.is_idle() { IDLE_MAX } else { PATIENCE } <= now;
        if is_done || is_late { Life::Ends } else { Life::Stays }
    }

    fn advance(&mut self, ready: PollFlags, told: &mut Told<'_>, now: Instant) -> io::Result<()> {
        if ready.contains(PollFlags::IN) && !self.is_answering() && !self.has_said_all {
            self.read(now)?;
        }
        if self.is_answering() {
            self.write(now)?;
        }
        // What it has sent behind a request is looked at once it has taken the answer: its socket
        // may announce nothing more.
        while !self.is_answering() && !self.is_last && self.has_request() && self.grant.take(now) {
            self.answer(told, now);
            self.write(now)?;
        }
        Ok(())
    }

    fn read(&mut self, now: Instant) -> io::Result<()> {
        let mut buffer = [0; 2048];
        let was_empty = self.input.is_empty();
        while self.input.len() < INPUT_BYTES_MAX {
            match self.socket.read(&mut buffer) {
                Ok(0) => {
                    self.has_said_all = true;
                    break;
                }
                Ok(read) => self.input.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if was_empty && !self.input.is_empty() {
            self.since = now;
        }
        Ok(())
    }

    /// Whether its input has a whole request, or too much for one.
    fn has_request(&self) -> bool {
        match self.speaks {
            Speaks::Lines => self.input.contains(&b'\n') || self.input.len() > REQUEST_BYTES_MAX,
            Speaks::Http => http::is_whole(&self.input) || self.input.len() >= INPUT_BYTES_MAX,
        }
    }

    fn answer(&mut self, told: &mut Told<'_>, now: Instant) {
        (self.output, self.is_last) = match self.speaks {
            Speaks::Lines => self.answer_line(told, now),
            // One request a connection: nothing of a second one is mistaken for the first.
            Speaks::Http => (http::answer(&self.input, told, now), true),
        };
        self.written = 0;
        self.since = now;
    }

    fn answer_line(&mut self, told: &mut Told<'_>, now: Instant) -> (Vec<u8>, bool) {
        let end = self.input.iter().position(|byte| *byte == b'\n').filter(|end| *end <= REQUEST_BYTES_MAX);
        let Some(end) = end else {
            let message = format!("a request has {REQUEST_BYTES_MAX} bytes at most");
            return (refusal(None, &Refusal::new("too-long", message)), true);
        };
        let line: Vec<u8> = self.input.drain(..=end).collect();
        let request = match std::str::from_utf8(&line[..end]) {
            Ok(text) => text.parse::<Request>(),
            Err(_) => Err(Refusal::new("malformed", "the request is not UTF-8")),
        };
        let answer = match request {
            Ok(Request { id, ask: Ask::Capture, capture, .. }) => {
                let begun =
                    self.socket.shared().and_then(|client| told.capture(&capture.unwrap_or_default(), id, client));
                match begun {
                    // The thread of the capture has the socket, and answers.
                    Ok(()) => return (Vec::new(), true),
                    Err(why) => refusal(id, &why),
                }
            }
            Ok(Request { id, ask: Ask::Trace, trace, .. }) => {
                let begun = self.socket.shared().and_then(|client| told.trace(&trace.unwrap_or_default(), id, client));
                match begun {
                    // As of a capture.
                    Ok(()) => return (Vec::new(), true),
                    Err(why) => refusal(id, &why),
                }
            }
            Ok(Request { id, ask: Ask::Log, log, .. }) => match told.log(log.as_deref()) {
                Ok(body) => crate::protocol::line(id, Ask::Log.word(), body),
                Err(why) => refusal(id, &why),
            },
            Ok(Request { id, ask, .. }) => match told.json(ask, now) {
                Ok(body) => crate::protocol::line(id, ask.word(), body),
                Err(why) => refusal(id, &why),
            },
            Err(why) => refusal(None, &why),
        };
        (answer, false)
    }

    fn write(&mut self, now: Instant) -> io::Result<()> {
        while self.is_answering() {
            match self.socket.write(&self.output[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => self.written += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // A client that asked once for much must not hold that for ever.
        (self.output, self.written, self.since) = (Vec::new(), 0, now);
        Ok(())
    }
}
