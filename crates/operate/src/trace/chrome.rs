//! A trace as a file that Perfetto and Chrome open: JSON of the Trace Event Format, with lcores as
//! tracks, turns and stages' calls as slices in them, and packets as arrows from slice to slice.

use std::io::{self, Write};

use serde_json::{Value, json};
use verbline_engine::TraceKind;

use super::journey::Journey;
use super::timeline::{Doing, Output, Slice};
use crate::protocol::TraceHead;

/// The most events of a file: some 100 MB. Perfetto takes several times as much memory.
const EVENTS_MAX: u64 = 1_000_000;

/// The only process in the file.
const PROCESS: u32 = 1;

/// A file being written. The times in which an lcore was kept from its CPU have a track of their
/// own below the lcore's, as they overlap turns.
#[derive(Debug)]
pub struct ChromeFile<W: Write> {
    out: W,
    head: TraceHead,
    written: u64,
    packets: u64,
    /// The first error.
    fault: Option<io::Error>,
}

impl<W: Write> ChromeFile<W> {
    /// Writes the tracks.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn new(mut out: W, plan: &str, head: &TraceHead) -> io::Result<ChromeFile<W>> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
        let mut file = ChromeFile { out, head: head.clone(), written: 0, packets: 0, fault: None };
        file.event(&json!({ "ph": "M", "name": "process_name", "pid": PROCESS, "args": { "name": plan } }));
        for (lcore, name) in head.lcores.iter().enumerate() {
            for (track, name) in [(track(lcore), format!("lcore {name}")), (below(lcore), format!("{name} stolen"))] {
                let sort = json!({ "sort_index": track });
                file.event(&json!({
                    "ph": "M", "name": "thread_name", "pid": PROCESS, "tid": track, "args": { "name": name },
                }));
                file.event(&json!({
                    "ph": "M", "name": "thread_sort_index", "pid": PROCESS, "tid": track, "args": sort,
                }));
            }
        }
        match file.fault.take() {
            Some(fault) => Err(fault),
            None => Ok(file),
        }
    }

    /// Whether it takes no more events: it is full, or can't be written.
    pub fn is_full(&self) -> bool {
        self.written >= EVENTS_MAX || self.fault.is_some()
    }

    /// Ends the file.
    ///
    /// # Errors
    /// It could not be written, now or before.
    pub fn end(mut self) -> io::Result<()> {
        match self.fault.take() {
            Some(fault) => Err(fault),
            None => {
                self.out.write_all(b"\n]}\n")?;
                self.out.flush()
            }
        }
    }

    fn event(&mut self, event: &Value) {
        if self.is_full() {
            return;
        }
        let gap = if self.written == 0 { "" } else { ",\n" };
        self.fault = write!(self.out, "{gap}{event}").err();
        self.written += 1;
    }

    fn place(&self, place: u16) -> &str {
        self.head.places.get(usize::from(place)).map_or("?", |place| place.name.as_str())
    }
}

/// The track of an lcore, from 1 on.
fn track(lcore: usize) -> usize {
    lcore * 2 + 1
}

/// The track below that of an lcore.
fn below(lcore: usize) -> usize {
    track(lcore) + 1
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

impl<W: Write> Output for ChromeFile<W> {
    fn slice(&mut self, lcore: usize, slice: &Slice) {
        let (name, args, tid) = match slice.doing {
            Doing::Turn => ("turn", json!({}), track(lcore)),
            Doing::Process { place, packets } => (self.place(place), json!({ "packets": packets }), track(lcore)),
            Doing::Poll { place } => (self.place(place), json!({ "poll": true }), track(lcore)),
            Doing::Asleep { cause } => ("asleep", json!({ "woken by": cause }), track(lcore)),
            Doing::Stolen => ("stolen", json!({ "when": "somewhere in the turn before" }), below(lcore)),
        };
        let (ts, dur) = (micros(slice.from_ns), micros(slice.took_ns()));
        let event = json!({
            "ph": "X", "name": name, "pid": PROCESS, "tid": tid, "ts": ts, "dur": dur, "args": args,
        });
        self.event(&event);
    }

    /// An arrow through the slices of the stages' calls with the packet.
    fn journey(&mut self, journey: &Journey) {
        self.packets += 1;
        let stops: Vec<_> = journey.steps.iter().filter(|step| step.kind == TraceKind::Entered).collect();
        for (at, step) in stops.iter().enumerate().filter(|_| stops.len() > 1) {
            let phase = match at {
                0 => "s",
                _ if at + 1 == stops.len() => "f",
                _ => "t",
            };
            let mut event = json!({
                "ph": phase, "cat": "packet", "name": "packet", "id": self.packets, "pid": PROCESS,
                "tid": track(step.lcore.into()), "ts": micros(step.at_ns),
            });
            if phase == "f" {
                event["bp"] = json!("e");
            }
            self.event(&event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::TraceHeadPlace;
    use crate::trace::journey::{Ending, Step};

    #[test]
    fn a_file_has_lcores_as_tracks_and_packets_as_arrows() {
        let places = ["stage.a", "stage.b"].map(|name| TraceHeadPlace { name: name.to_owned(), lcore: 0 });
        let head = TraceHead { lcores: vec!["x".into(), "y".into()], places: places.into(), one_in: None };
        let mut bytes = Vec::new();
        let mut file = ChromeFile::new(&mut bytes, "plan \"quoted\"", &head).unwrap();
        let slice = |doing, from_ns, to_ns| Slice { doing, from_ns, to_ns };
        file.slice(0, &slice(Doing::Process { place: 0, packets: 3 }, 1_500, 2_750));
        file.slice(1, &slice(Doing::Asleep { cause: "ring" }, 0, 10));
        file.slice(1, &slice(Doing::Stolen, 0, 10));
        let step = |place, lcore, at_ns| Step { kind: TraceKind::Entered, place, lcore, at_ns };
        let steps = vec![step(0, 0, 1_500), step(1, 1, 3_000)];
        let (is_marked, is_whole, ending) = (true, true, Ending::InStage);
        file.journey(&Journey { steps, waited_ns: 0, is_marked, is_whole, returned_ns: None, ending });
        file.end().unwrap();
        let value: Value = serde_json::from_slice(&bytes).unwrap();
        let events = value["traceEvents"].as_array().unwrap();
        let named = |name: &str| events.iter().filter(|event| event["name"] == name).collect::<Vec<_>>();
        let tracks: Vec<_> = named("thread_name").iter().map(|event| event["args"]["name"].clone()).collect();
        assert_eq!(tracks, ["lcore x", "x stolen", "lcore y", "y stolen"]);
        let call = named("stage.a")[0];
        assert_eq!((&call["ts"], &call["dur"], &call["tid"]), (&json!(1.5), &json!(1.25), &json!(1)));
        assert_eq!((&named("asleep")[0]["tid"], &named("stolen")[0]["tid"]), (&json!(3), &json!(4)));
        let arrow: Vec<_> = named("packet").iter().map(|event| event["ph"].clone()).collect();
        assert_eq!((arrow, &named("packet")[1]["bp"]), (vec![json!("s"), json!("f")], &json!("e")));
    }

    #[test]
    fn what_can_not_be_written_is_told_at_the_end() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let head = TraceHead { lcores: vec!["x".into()], places: Vec::new(), one_in: None };
        let mut file = ChromeFile::new(Full(1_000), "plan", &head).unwrap();
        (0..20).for_each(|at| file.slice(0, &Slice { doing: Doing::Turn, from_ns: at, to_ns: at + 1 }));
        assert!(file.is_full());
        assert_eq!(file.end().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
