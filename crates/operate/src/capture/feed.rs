//! Feeds a capture to its client: the blocks of a file in the format pcapng.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use verbline_engine::{Capture, CaptureDirection, CaptureError, Captured};

use super::frame::{self, Ends};
use super::pcapng;
use crate::protocol::Refusal;
use crate::stream::Feed;

/// Connections whose frames are numbered in order; with more, the numbers begin again.
const NUMBERED_MAX: usize = 65_536;

/// See the top of this file.
pub(crate) struct CaptureFeed {
    capture: Capture,
    plan: String,
    raw: bool,
    /// The next packet's number, by source and destination queue pair.
    numbers: HashMap<(u32, u32), u32>,
    frame: Vec<u8>,
}

impl CaptureFeed {
    pub(crate) fn new(capture: Capture, plan: &str, raw: bool) -> CaptureFeed {
        CaptureFeed { capture, plan: plan.to_owned(), raw, numbers: HashMap::new(), frame: Vec::new() }
    }
}

impl Feed for CaptureFeed {
    fn head(&mut self, out: &mut Vec<u8>) {
        pcapng::section(out, concat!("verbline ", env!("CARGO_PKG_VERSION")), &format!("plan {}", self.plan));
        for (point, name) in self.capture.points().iter().enumerate() {
            // Points other than ports have no queue pairs to make a frame from.
            let is_framed = self.capture.is_port(point) && !self.raw;
            let linktype = if is_framed { pcapng::LINKTYPE_ETHERNET } else { pcapng::LINKTYPE_USER0 };
            pcapng::interface(out, linktype, name);
        }
    }

    fn take(&mut self, out: &mut Vec<u8>) -> usize {
        let CaptureFeed { capture, raw, numbers, frame, .. } = self;
        let origin_ns = capture.unix_ns(0);
        capture.take(|captured| {
            let is_bare = *raw || captured.direction == CaptureDirection::Within;
            let (bytes, beside) = match is_bare {
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
                direction: captured.direction,
            };
            pcapng::packet(out, packet);
        })
    }

    fn tail(&mut self, out: &mut Vec<u8>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        for point in 0..self.capture.points().len() {
            let (seen, lost) = self.capture.counts(point);
            pcapng::statistics(out, point as u32, unix_ns, seen, lost);
        }
    }

    fn is_over(&self) -> bool {
        self.capture.is_over()
    }

    fn end(&mut self) {
        self.capture.end();
    }
}

pub(crate) fn refusal(error: CaptureError) -> Refusal {
    let code = match error {
        CaptureError::Over => "over",
        CaptureError::Busy | CaptureError::LcoreLate { .. } => "busy",
        _ => "invalid",
    };
    Refusal::new(code, error.to_string())
}

/// The number of a packet among those between its queue pairs, counted from their initial number.
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
