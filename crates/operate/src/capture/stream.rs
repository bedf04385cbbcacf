//! The thread of a capture: takes what the lcores have copied, and writes it to the client that
//! asked, until that has enough or the run is over.
//!
//! Guarantees: a run has one such thread at most; a client that takes nothing for [`PATIENCE`] ends
//! its capture, and so does one that goes away or closes its sending half. Neither is waited for by
//! anybody else: what the lcores copy meanwhile is lost to the capture, and counted.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use verbline_engine::{Capture, CaptureDirection, CaptureError, Captured, Observer};

use super::frame::{self, Ends};
use super::pcapng;
use crate::capture_ask::CaptureAsk;
use crate::listener::PATIENCE;
use crate::protocol::{self, Refusal};

/// Between two looks at what the lcores have copied.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// For the client to take what is left as the run ends.
const GRACE: Duration = Duration::from_secs(1);

/// Bytes that are written at once.
const PIECE_BYTES: usize = 256 << 10;

/// Connections whose frames are numbered in order; beyond them numbers begin again.
const NUMBERED_MAX: usize = 65_536;

/// The captures of a run: one at a time.
#[derive(Debug, Default)]
pub(crate) struct Captures {
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

impl Captures {
    /// Begins a capture, which goes to the client as the answer to its request `id`.
    pub(crate) fn begin(
        &mut self,
        observer: &Observer,
        plan: &str,
        ask: &CaptureAsk,
        id: Option<u64>,
        client: UnixStream,
    ) -> Result<(), Refusal> {
        let capture = ask.spec().and_then(|spec| observer.capture(&spec)).map_err(refusal)?;
        let no_thread = |error| Refusal::new("busy", format!("no thread is free for it: {error}"));
        let (stop, client) = (Arc::new(AtomicBool::new(false)), Arc::new(client));
        let shared = Arc::downgrade(&client);
        let mut stream = Stream {
            answer: protocol::line(id, "capture", &serde_json::json!({ "points": capture.points() }).to_string()),
            capture,
            client,
            plan: plan.to_owned(),
            raw: ask.raw,
            stop: Arc::clone(&stop),
            numbers: HashMap::new(),
        };
        let named = std::thread::Builder::new().name("vl-capture".into());
        let thread = named.spawn(move || {
            // A client that goes away has ended its capture.
            if let Err(error) = stream.run() {
                tracing::debug!(%error, "a capture ended before its client had all of it");
            }
        });
        let last = Last { stop, client: shared, thread: thread.map_err(no_thread)? };
        // That of the capture before has ended: else this one would have been refused.
        drop(self.last.replace(last));
        Ok(())
    }
}

impl Drop for Captures {
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
            tracing::error!("the thread of a capture has panicked");
        }
    }
}

fn refusal(error: CaptureError) -> Refusal {
    let code = match error {
        CaptureError::Over => "over",
        CaptureError::Busy | CaptureError::LcoreLate { .. } => "busy",
        _ => "invalid",
    };
    Refusal::new(code, error.to_string())
}

struct Stream {
    answer: Vec<u8>,
    capture: Capture,
    client: Arc<UnixStream>,
    plan: String,
    raw: bool,
    stop: Arc<AtomicBool>,
    /// The next packet's number, by the queue pairs that it goes from and to.
    numbers: HashMap<(u32, u32), u32>,
}

impl Stream {
    fn run(&mut self) -> io::Result<()> {
        self.client.set_nonblocking(false)?;
        self.client.set_write_timeout(Some(PATIENCE))?;
        let mut out = std::mem::take(&mut self.answer);
        self.head(&mut out);
        let mut frame = Vec::new();
        loop {
            self.write(&mut out)?;
            // Relaxed: as where it is set.
            let is_last = self.stop.load(Ordering::Relaxed) || self.capture.is_over() || self.has_enough()?;
            if is_last {
                self.capture.end();
            }
            let taken = self.take(&mut out, &mut frame);
            if is_last {
                self.tail(&mut out);
                return self.write(&mut out);
            }
            if taken == 0 {
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }

    fn head(&self, out: &mut Vec<u8>) {
        pcapng::section(out, concat!("verbline ", env!("CARGO_PKG_VERSION")), &format!("plan {}", self.plan));
        let linktype = if self.raw { pcapng::LINKTYPE_USER0 } else { pcapng::LINKTYPE_ETHERNET };
        self.capture.points().iter().for_each(|name| pcapng::interface(out, linktype, name));
    }

    fn tail(&self, out: &mut Vec<u8>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        for point in 0..self.capture.points().len() {
            let (seen, lost) = self.capture.counts(point);
            pcapng::statistics(out, point as u32, unix_ns, seen, lost);
        }
    }

    /// Appends the blocks of what waits.
    fn take(&mut self, out: &mut Vec<u8>, frame: &mut Vec<u8>) -> usize {
        let Stream { capture, raw, numbers, .. } = self;
        let origin_ns = capture.unix_ns(0);
        capture.take(|captured| {
            let (bytes, beside) = match raw {
                true => (captured.data(), 0),
                false => {
                    let beside = frame::write(frame, captured, number(numbers, captured));
                    (&frame[..], beside)
                }
            };
            let packet = pcapng::Packet {
                interface: captured.point as u32,
                unix_ns: origin_ns.saturating_add(captured.at_ns),
                bytes,
                len_bytes: captured.len_bytes + beside,
                is_received: captured.direction == CaptureDirection::Received,
            };
            pcapng::packet(out, packet);
        })
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

/// The number of a packet among those between its queue pairs, from the one on that they agreed on.
fn number(numbers: &mut HashMap<(u32, u32), u32>, captured: &Captured) -> u32 {
    let Ends { from, to, .. } = Ends::of(captured);
    if numbers.len() >= NUMBERED_MAX {
        numbers.clear();
    }
    let next = numbers.entry((from.qpn, to.qpn)).or_insert(from.psn);
    let number = *next;
    *next = next.wrapping_add(1);
    number
}
