//! One client of the server: its requests, its pending answer, and its time limits.
//!
//! Guarantees: a client holds [`INPUT_BYTES_MAX`] bytes and one answer at most. It is dropped when
//! a request takes longer than [`PATIENCE`] to arrive, when an answer takes longer than that to be
//! read, or when it sends no request for [`IDLE_MAX`]. A client that asks more often than its grant
//! allows waits, and delays no other client.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::grant::Grant;
use crate::http;
use crate::listener::{PATIENCE, Socket};
use crate::protocol::{Ask, REQUEST_BYTES_MAX, Refusal, Request, refusal};
use crate::snapshot_cache::Told;

/// The time limit between requests.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(60);

/// Bytes of a client's unanswered input.
const INPUT_BYTES_MAX: usize = 8192;

/// The burst of requests, and the time until one more is granted.
const REQUESTS_BURST: u32 = 20;
const REQUEST_EVERY: Duration = Duration::from_millis(20);

/// The protocol of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// [`crate::protocol`].
    Lines,
    /// GET requests for the metrics and the page.
    Http,
}

/// The result of serving a client once.
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
    /// The connection ends once the output is written.
    is_last: bool,
    /// The peer has closed its sending half.
    has_said_all: bool,
    /// The start of its current phase: idle, sending a request, or reading an answer.
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

    /// A client that only gets the reason why it is not served.
    pub(crate) fn refused(socket: Socket, speaks: Speaks, why: &Refusal, now: Instant) -> Peer {
        let mut peer = Peer::new(socket, speaks, now);
        let told = match speaks {
            Speaks::Lines => refusal(None, why),
            Speaks::Http => http::refusal(why),
        };
        (peer.output, peer.is_last) = (told, true);
        peer
    }

    /// Writes whatever the socket takes at once.
    pub(crate) fn bid_farewell(&mut self, now: Instant) {
        // It is dropped whether or not it gets the reason.
        let _ = self.write(now);
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The events to wait for. Nothing is read from a client with an answer to read.
    pub(crate) fn wants(&self, now: Instant) -> PollFlags {
        if self.is_answering() {
            PollFlags::OUT
        } else if self.has_said_all || self.grant.ready_at() > now {
            PollFlags::empty()
        } else {
            PollFlags::IN
        }
    }

    /// The time of the next look, even without events.
    pub(crate) fn deadline(&self, now: Instant) -> Instant {
        let ends_at = self.since + if self.is_idle() { IDLE_MAX } else { PATIENCE };
        let ready_at = self.grant.ready_at();
        // A request that was looked at without a grant may have one by now.
        let is_due = !self.is_answering() && (ready_at > now || self.has_request());
        if is_due { ends_at.min(ready_at) } else { ends_at }
    }

    /// The time since which it has sent no request; `None` while it is served.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        self.is_idle().then_some(self.since)
    }

    /// The time since which a request has been incomplete; `None` without one.
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

    /// Serves the client, whose socket is `ready` for these events.
    pub(crate) fn serve(&mut self, ready: PollFlags, told: &mut Told<'_>, now: Instant) -> Life {
        // A client that has hung up reads no answer.
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
        // Input behind a request is handled as soon as the answer is written: the socket may report
        // no further events.
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

    /// Whether its input holds a whole request, or is too long for one.
    fn has_request(&self) -> bool {
        match self.speaks {
            Speaks::Lines => self.input.contains(&b'\n') || self.input.len() > REQUEST_BYTES_MAX,
            Speaks::Http => http::is_whole(&self.input) || self.input.len() >= INPUT_BYTES_MAX,
        }
    }

    fn answer(&mut self, told: &mut Told<'_>, now: Instant) {
        (self.output, self.is_last) = match self.speaks {
            Speaks::Lines => self.answer_line(told, now),
            // One request per connection, so that no part of a second one is taken for the first.
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
                    // The thread of the capture takes over the socket, and answers.
                    Ok(()) => return (Vec::new(), true),
                    Err(why) => refusal(id, &why),
                }
            }
            Ok(Request { id, ask: Ask::Trace, trace, .. }) => {
                let begun = self.socket.shared().and_then(|client| told.trace(&trace.unwrap_or_default(), id, client));
                match begun {
                    // As for a capture.
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
        // Releases the memory of a large answer.
        (self.output, self.written, self.since) = (Vec::new(), 0, now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a client whose grant came back between a look at it and the next wait was looked
    /// at no more before its time was over, two seconds later.
    #[test]
    fn a_request_that_is_granted_since_it_was_looked_at_is_looked_at_at_once() {
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        let now = Instant::now();
        let mut peer = Peer::new(Socket::Unix(near), Speaks::Lines, now);
        peer.input = b"{}\n".to_vec();
        while peer.grant.take(now) {}
        let ready_at = peer.grant.ready_at();
        assert_eq!(peer.deadline(now), ready_at);
        assert_eq!(peer.deadline(ready_at + Duration::from_millis(1)), ready_at);
        // Without a whole request it waits for the rest.
        peer.input.pop();
        assert_eq!(peer.deadline(ready_at), now + PATIENCE);
    }
}
