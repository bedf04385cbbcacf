//! The events of a trace, as a client receives them.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use verbline_engine::{TraceEvent, TraceKind};

use crate::incoming::Incoming;

/// A trace being received. Dropping it ends it, and waits for that for a second at most.
#[derive(Debug)]
pub struct Events {
    incoming: Incoming,
    lcores: usize,
    /// The lcore of the next event.
    lcore: usize,
}

impl Events {
    pub(crate) fn new(stream: UnixStream, read: Vec<u8>, lcores: usize) -> Events {
        Events { incoming: Incoming::new(stream, read), lcores, lcore: 0 }
    }

    /// Asks the run to end the trace; the rest of it still arrives.
    pub fn end(&self) {
        self.incoming.end();
    }

    /// Hands each received event to `each`, with its lcore. Without any, waits for at most
    /// `patience`.
    ///
    /// # Errors
    /// `UnexpectedEof`: the trace has ended. `InvalidData`: the bytes are not a trace.
    pub fn take(&mut self, patience: Duration, mut each: impl FnMut(usize, TraceEvent)) -> io::Result<()> {
        if self.incoming.rest().len() < TraceEvent::BYTES && !self.incoming.wait(patience)? {
            return Ok(());
        }
        let mut taken = 0;
        while let Some(bytes) = self.incoming.rest()[taken..].first_chunk::<{ TraceEvent::BYTES }>() {
            let event = TraceEvent::from_bytes(*bytes);
            taken += TraceEvent::BYTES;
            match event.kind() {
                Some(TraceKind::Lcore) => self.lcore = usize::from(event.place()),
                Some(_) => each(self.lcore, event),
                // An event kind of a later version.
                None => {}
            }
            if self.lcore >= self.lcores {
                let why = format!("an event is of lcore {}, and the run has {}", self.lcore, self.lcores);
                return Err(io::Error::new(ErrorKind::InvalidData, why));
            }
        }
        self.incoming.take(taken);
        Ok(())
    }
}
