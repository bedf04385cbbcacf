//! A thread that writes to one client what the lcores of a run hand out, for a capture or a trace,
//! until that client has enough or the run is over.
//!
//! Guarantees: a run has one such thread of each kind at most; a client that takes nothing for
//! [`PATIENCE`] ends its stream, and so does one that goes away or closes its sending half. Neither
//! is waited for by anybody else: what the lcores hand out meanwhile is lost, and counted.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::listener::PATIENCE;
use crate::protocol::Refusal;

/// Between two looks at what the lcores have handed out.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// For the client to take what is left as the run ends.
const GRACE: Duration = Duration::from_secs(1);

/// Bytes that are written at once.
const PIECE_BYTES: usize = 256 << 10;

/// What is written.
pub(crate) trait Feed: Send + 'static {
    /// Appends what comes first.
    fn head(&mut self, out: &mut Vec<u8>);
    /// Appends what has come since; says how much that is.
    fn take(&mut self, out: &mut Vec<u8>) -> usize;
    /// Appends what comes last.
    fn tail(&mut self, out: &mut Vec<u8>);
    /// Whether nothing will come any more.
    fn is_over(&self) -> bool;
    /// The lcores are to hand out no more: [`Feed::take`] then gives what is left.
    fn end(&mut self);
}

/// The streams of one kind that a run has: one at a time.
#[derive(Debug)]
pub(crate) struct Streams {
    /// The thread's name.
    thread: &'static str,
    last: Option<Last>,
}

/// The last one, which may have ended.
#[derive(Debug)]
struct Last {
    stop: Arc<AtomicBool>,
    /// For as long as the thread has it.
    client: Weak<UnixStream>,
    thread: JoinHandle<()>,
}

impl Streams {
    pub(crate) fn new(thread: &'static str) -> Streams {
        Streams { thread, last: None }
    }

    /// Begins one, which goes to the client behind the line `answer`.
    pub(crate) fn begin(&mut self, feed: impl Feed, answer: Vec<u8>, client: UnixStream) -> Result<(), Refusal> {
        let no_thread = |error| Refusal::new("busy", format!("no thread is free for it: {error}"));
        let (stop, client) = (Arc::new(AtomicBool::new(false)), Arc::new(client));
        let shared = Arc::downgrade(&client);
        let mut stream = Stream { feed, answer, client, stop: Arc::clone(&stop) };
        let thread = std::thread::Builder::new().name(self.thread.into()).spawn(move || {
            // A client that goes away has ended its stream.
            if let Err(error) = stream.run() {
                tracing::debug!(%error, "a capture or a trace ended before its client had all of it");
            }
        });
        let last = Last { stop, client: shared, thread: thread.map_err(no_thread)? };
        // The one before has ended: else this one would have been refused.
        drop(self.last.replace(last));
        Ok(())
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        let Some(Last { stop, client, thread }) = self.last.take() else { return };
        // Relaxed: it carries no data, and a look later is soon enough.
        stop.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + GRACE;
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(LOOK_EVERY);
        }
        // A client that takes nothing keeps nobody: the thread's write fails.
        if let Some(client) = client.upgrade() {
            let _ = client.shutdown(Shutdown::Both);
        }
        if thread.join().is_err() {
            tracing::error!(thread = self.thread, "a thread has panicked");
        }
    }
}

struct Stream<F> {
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

    /// Whether the client has gone, or has closed its sending half.
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
