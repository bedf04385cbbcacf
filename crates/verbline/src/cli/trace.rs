//! `trace`: the ways of a run's packets, the time of each step, and the lcores' activities
//! meanwhile.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use verbline_operate::client::open;
use verbline_operate::protocol::TraceHead;
use verbline_operate::trace::chrome::ChromeFile;
use verbline_operate::trace::events::Events;
use verbline_operate::trace::journey::Journey;
use verbline_operate::trace::summary::Summary;
use verbline_operate::trace::timeline::Slice;
use verbline_operate::trace::{Analysis, Output, Wanted};

use super::args_operate::TraceOptions;
use super::capture_files::created;
use super::output::{document, message, part, result};
use super::run::fail;
use super::signals::caught;
use super::trace_text::{kept_text, text};

/// The time until a signal is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The time for the run to send more of the rest after the request to end.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// The number of packets that the document has whole.
const FIRST_MAX: usize = 1000;

/// Traces until the packets or the time are reached, a signal arrives, or the run ends. Or shows
/// the packets that the run has kept.
pub(super) fn trace(options: &TraceOptions) -> ExitCode {
    if options.kept {
        return kept(options);
    }
    match traced(options) {
        Ok((_, summary)) if options.json => {
            document(&serde_json::to_value(&summary).unwrap_or_default(), ExitCode::SUCCESS, None)
        }
        Ok((plan, summary)) => result(&text(&plan, &summary), ExitCode::SUCCESS, None),
        Err(why) => fail(&why),
    }
}

fn kept(options: &TraceOptions) -> ExitCode {
    let asked = open(options.name.as_deref()).and_then(|mut client| Ok((client.hello()?, client.kept()?)));
    let (hello, mut kept) = match asked {
        Ok(asked) => asked,
        Err(error) => return fail(&error.to_string()),
    };
    kept.found.slowest.truncate(options.slowest());
    kept.found.turns.truncate(options.slowest());
    match options.json {
        true => document(&serde_json::to_value(&kept).unwrap_or_default(), ExitCode::SUCCESS, None),
        false => result(&kept_text(&hello.plan, &kept), ExitCode::SUCCESS, None),
    }
}

fn traced(options: &TraceOptions) -> Result<(String, Summary), String> {
    let asked = caught().map_err(|error| format!("signals can't be caught: {error}"))?;
    let begun = open(options.name.as_deref()).and_then(|mut client| {
        let hello = client.hello()?;
        Ok((hello, client.trace(options.ask())?))
    });
    let (hello, (head, events)) = begun.map_err(|error| error.to_string())?;
    let wanted = Wanted {
        at: options.at.as_deref().map(|name| place(&head, name)).transpose()?,
        above_ns: options.above.map_or(0, |above| u64::try_from(above.as_nanos()).unwrap_or(u64::MAX)),
        packets: options.packets().unwrap_or(u64::MAX),
        first: if options.json { FIRST_MAX } else { 0 },
        slowest: options.slowest(),
        last_ns: options.last.map(|last| u64::try_from(last.as_nanos()).unwrap_or(u64::MAX)),
    };
    let mut sink = Sink { chrome: None };
    if options.chrome.is_some() {
        sink.chrome = Some(chrome(options, &hello.plan, &head)?);
    }
    let limit = options.length().map_or(String::new(), |length| format!(" for {length:?} at most"));
    message(&format!("{}: tracing{limit}; Ctrl-C ends it", hello.plan));
    let mut analysis = Analysis::new(head, wanted);
    take_all(options, &hello.plan, events, &mut analysis, &mut sink, &asked)?;
    let summary = analysis.finish(&mut sink);
    if let (Some(file), Some(path)) = (sink.chrome, &options.chrome) {
        file.end().map_err(|error| format!("{} can't be written: {error}", path.display()))?;
        message(&format!("{} is for https://ui.perfetto.dev or chrome://tracing", path.display()));
    }
    Ok((hello.plan, summary))
}

/// The place of this name.
fn place(head: &TraceHead, name: &str) -> Result<u16, String> {
    match head.places.iter().position(|place| place.name == name) {
        Some(place) => Ok(place as u16),
        None => {
            let names: Vec<&str> = head.places.iter().map(|place| place.name.as_str()).collect();
            Err(format!("the run has no place {name:?}; it has {}", names.join(", ")))
        }
    }
}

fn chrome(options: &TraceOptions, plan: &str, head: &TraceHead) -> Result<ChromeFile<BufWriter<File>>, String> {
    let Some(path) = &options.chrome else { return Err("no file is named".to_owned()) };
    let unwritten = |error: io::Error| match error.kind() {
        ErrorKind::AlreadyExists => format!("{} is there already; take another name, or --force", path.display()),
        _ => format!("{} can't be written: {error}", path.display()),
    };
    let file = created(path, options.force).map_err(unwritten)?;
    ChromeFile::new(BufWriter::with_capacity(1 << 20, file), plan, head).map_err(unwritten)
}

/// The output of slices.
struct Sink {
    chrome: Option<ChromeFile<BufWriter<File>>>,
}

impl Sink {
    fn is_full(&self) -> bool {
        self.chrome.as_ref().is_some_and(ChromeFile::is_full)
    }
}

impl Output for Sink {
    fn slice(&mut self, lcore: usize, slice: &Slice) {
        self.chrome.iter_mut().for_each(|file| file.slice(lcore, slice));
    }

    fn journey(&mut self, journey: &Journey) {
        self.chrome.iter_mut().for_each(|file| file.journey(journey));
    }
}

/// Shows the results so far. False if the reader has gone.
fn show(options: &TraceOptions, plan: &str, summary: &Summary) -> bool {
    let shown = match options.json {
        true => format!("{:#}\n", serde_json::to_value(summary).unwrap_or_default()),
        false => format!("{}\n", text(plan, summary)),
    };
    part(&shown, options.json).is_none()
}

fn take_all(
    options: &TraceOptions,
    plan: &str,
    mut events: Events,
    analysis: &mut Analysis,
    sink: &mut Sink,
    asked: &AtomicBool,
) -> Result<(), String> {
    let until = options.length().and_then(|length| Instant::now().checked_add(length));
    let after = |every: Duration| Instant::now().checked_add(every);
    let mut shown_at = options.every.and_then(after);
    let mut ends_at = None;
    loop {
        let now = Instant::now();
        let has_packets = options.packets().is_some_and(|packets| analysis.packets() >= packets);
        // Relaxed: the flag publishes no data, and may be seen one look later.
        let is_enough =
            has_packets || until.is_some_and(|until| until <= now) || sink.is_full() || asked.load(Ordering::Relaxed);
        if is_enough && ends_at.is_none() {
            events.end();
            ends_at = Some(now + END_PATIENCE);
        }
        if ends_at.is_some_and(|ends_at| ends_at <= now) {
            message("the run stands still: it does not end the trace, of which this is what came");
            return Ok(());
        }
        if ends_at.is_none() && shown_at.is_some_and(|shown_at| shown_at <= now) {
            if !show(options, plan, &analysis.summary()) {
                return Ok(());
            }
            shown_at = options.every.and_then(after);
        }
        let left = until.map_or(LOOK_EVERY, |until| until.saturating_duration_since(now));
        let patience = left.clamp(Duration::from_millis(1), LOOK_EVERY);
        let mut has_come = false;
        let taken = events.take(patience, |lcore, event| {
            has_come = true;
            analysis.add(lcore, event, sink);
        });
        match taken {
            // A busy machine may take longer than the patience for the whole rest.
            Ok(()) if has_come && ends_at.is_some() => ends_at = Some(Instant::now() + END_PATIENCE),
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(format!("the trace breaks off: {error}")),
        }
    }
}
