//! A thread that writes the lcores' data of a capture or a trace to one client, until the client
//! has enough or the run ends.
//!
//! Guarantees: a run has one such thread of each kind at most. A client that reads nothing for
//! [`PATIENCE`] ends its stream, and so does one that goes away or closes its sending half. No
//! other part of the run waits for the client: data handed out meanwhile is lost, and counted.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::listener::PATIENCE;
use crate::protocol::Refusal;

/// The time between two looks at the lcores' data.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The time for the client to read the rest when the run ends.
const GRACE: Duration = Duration::from_secs(1);

/// The time for the stream of a client that has gone to end, before the next one begins. The
/// listener's only thread waits: an lcore that is late may take the second that a client waits when
/// it gives its stream up, and other clients would wait with it.
const GIVES_WAY: Duration = Duration::from_millis(100);

/// The most bytes written at once.
const PIECE_BYTES: usize = 256 << 10;

/// A source of data.
pub(crate) trait Feed: Send + 'static {
    /// Appends the beginning.
    fn head(&mut self, out: &mut Vec<u8>);
    /// Appends the new data. Returns its amount.
    fn take(&mut self, out: &mut Vec<u8>) -> usize;
    /// Appends the end.
    fn tail(&mut self, out: &mut Vec<u8>);
    /// Whether no more data will come.
    fn is_over(&self) -> bool;
    /// Tells the lcores to hand out no more: [`Feed::take`] then returns the rest.
    fn end(&mut self);
}

/// The streams of one kind in a run: one at a time.
#[derive(Debug)]
pub(crate) struct Streams {
    /// The thread's name.
    thread: &'static str,
    last: Option<Last>,
}

/// The last stream, which may have ended.
#[derive(Debug)]
struct Last {
    stop: Arc<AtomicBool>,
    /// Alive as long as the thread has it.
    client: Weak<UnixStream>,
    thread: JoinHandle<()>,
}

impl Streams {
    pub(crate) fn new(thread: &'static str) -> Streams {
        Streams { thread, last: None }
    }

    /// Waits for the end of the last stream if its client has gone, as a killed one has: the thread
    /// notices that at its next look, and the lcores some time later.
    pub(crate) fn await_end_of_gone(&self) {
        let Some(Last { client, .. }) = &self.last else { return };
        let deadline = Instant::now() + GIVES_WAY;
        while client.upgrade().is_some_and(|client| has_gone(&client)) && Instant::now() < deadline {
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Begins a stream to the client, behind the line `answer`.
    pub(crate) fn begin(&mut self, feed: impl Feed, answer: Vec<u8>, client: UnixStream) -> Result<(), Refusal> {
        let no_thread = |error| Refusal::new("busy", format!("no thread is free for it: {error}"));
        let (stop, client) = (Arc::new(AtomicBool::new(false)), Arc::new(client));
        let shared = Arc::downgrade(&client);
        let mut stream = Stream { feed, answer, client, stop: Arc::clone(&stop) };
        let thread = std::thread::Builder::new().name(self.thread.into()).spawn(move || {
            // A client that goes away ends its stream.
            if let Err(error) = stream.run() {
                tracing::debug!(%error, "a capture or a trace ended before its client had all of it");
            }
        });
        let last = Last { stop, client: shared, thread: thread.map_err(no_thread)? };
        // The stream before has ended, or this one would have been refused.
        drop(self.last.replace(last));
        Ok(())
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        let Some(Last { stop, client, thread }) = self.last.take() else { return };
        // Relaxed: it publishes no data, and may be seen one look later.
        stop.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + GRACE;
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(LOOK_EVERY);
        }
        // A client that reads nothing does not delay the end: the thread's write fails.
        if let Some(client) = client.upgrade() {
            let _ = client.shutdown(Shutdown::Both);
        }
        if thread.join().is_err() {
            tracing::error!(thread = self.thread, "a thread has panicked");
        }
    }
}

/// Whether the client has hung up, or has closed its sending half.
fn has_gone(client: &UnixStream) -> bool {
    let mut polled = [PollFd::new(client, PollFlags::RDHUP)];
    // It does not wait: an error would be one of the kernel's memory.
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
}

struct Stream<F> {
    /// Dropped before `client`, by which others see that the stream has ended.
    feed: F,
    answer: Vec<u8>,
    client: Arc<UnixStream>,
    stop: Arc<AtomicBool>,
}

impl<F: Feed> Stream<F> {
    fn run(&mut self) -> io::Result<()> {
        self.client.set_nonblocking(false)?;
        self.client.set_write_timeout(Some(PATIENCE))?;
        let mut out = std::mem::take(&mut self.answer);
        self.feed.head(&mut out);
        loop {
            self.write(&mut out)?;
            // Relaxed: as where it is set.
            let is_last = self.stop.load(Ordering::Relaxed) || self.feed.is_over() || self.has_enough()?;
            if is_last {
                self.feed.end();
            }
            let taken = self.feed.take(&mut out);
            if is_last {
                self.feed.tail(&mut out);
                return self.write(&mut out);
            }
            if taken == 0 {
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }

    fn write(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        out.chunks(PIECE_BYTES).try_for_each(|piece| (&*self.client).write_all(piece))?;
        out.clear();
        Ok(())
    }

    /// Whether the client has gone, or has closed its sending half. The reads, unlike [`has_gone`],
    /// take in what the client sends meanwhile: a socket that is closed with unread bytes is reset,
    /// and the client would not see an orderly end.
    fn has_enough(&mut self) -> io::Result<bool> {
        self.client.set_nonblocking(true)?;
        let said = (&*self.client).read(&mut [0; 64]);
        self.client.set_nonblocking(false)?;
        match said {
            Ok(said) => Ok(said == 0),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
