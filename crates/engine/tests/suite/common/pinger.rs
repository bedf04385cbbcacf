//! A stage that sends a packet, waits for it to come back, and sends the next.

use serde::Deserialize;
use verbline_engine::{Counter, Next, Outputs, Stage, StageContext, StageError, Tick};
use verbline_mem::Batch;

use super::OUT;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PingerParams {
    count: u64,
    #[serde(default = "super::eight")]
    size_bytes: usize,
    /// Sends a packet again that has not come back in this time, for paths that may lose one.
    again_ms: Option<u64>,
}

/// Sends a packet, waits for it to come back, and sends the next.
pub(super) struct Pinger {
    params: PingerParams,
    trips: Counter,
    total_ns: Counter,
    sent_ns: Option<Tick>,
}

impl Pinger {
    pub(super) fn new(context: &StageContext<'_>) -> Result<Pinger, StageError> {
        let (trips, total_ns) = (context.counter("trips"), context.counter("total_ns"));
        Ok(Pinger { params: context.params()?, trips, total_ns, sent_ns: None })
    }
}

impl Stage for Pinger {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        // Repeated packets may come back several at once.
        let sends_again = self.params.again_ms.is_some();
        assert!(sends_again || input.len() == 1, "one at a time: {}", input.len());
        while let Some(packet) = input.pop() {
            assert_eq!(packet.len(), self.params.size_bytes);
            let number = u64::from_le_bytes(packet.data()[..8].try_into().expect("eight bytes"));
            if sends_again && number < self.trips.value() {
                // The first copy was late, not lost.
                continue;
            }
            assert_eq!(number, self.trips.value());
            self.total_ns.add(out.fresh_ns() - self.sent_ns.take().expect("sent before it came back"));
            self.trips.add(1);
        }
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.trips.value() == self.params.count {
            return Next::Done;
        }
        let again_ns = self.params.again_ms.map(|again_ms| again_ms * 1_000_000);
        if let (Some(sent_ns), Some(again_ns)) = (self.sent_ns, again_ns) {
            if out.fresh_ns() < sent_ns + again_ns {
                return Next::At(sent_ns + again_ns);
            }
            self.sent_ns = None;
        }
        if self.sent_ns.is_none() {
            let mut packet = out.alloc().expect("a packet: one is out at a time");
            assert!(packet.set_len(self.params.size_bytes));
            packet.data_mut()[..8].copy_from_slice(&self.trips.value().to_le_bytes());
            self.sent_ns = Some(out.fresh_ns());
            assert!(out.send(OUT, packet));
        }
        Next::Idle
    }
}
