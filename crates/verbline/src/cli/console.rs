//! Standard error, written by one thread.
//!
//! Guarantees: no other thread waits for the reader of standard error, be it a stopped terminal
//! (Ctrl-S) or a pipe that is not read. Texts wait in a bounded queue; texts without room are
//! counted, and the count is written once the queue moves again. Texts that can't be written are
//! counted, too. The live line is a slot, not a queue: only the latest is drawn.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::termios::tcgetwinsize;

use super::figures::count;
use super::line::Line;
use super::rate;
use super::said::{self, Out, journal};

/// The most texts in the queue.
const TEXTS_MAX: usize = 1024;

/// The time between checks for log records that were left out, of which nothing wakes the thread.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The time between looks of a thread that waits until all is written.
const WAIT_STEP: Duration = Duration::from_millis(2);

/// A reader that reads nothing for this long is given up.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of one write: between them, a slow reader shows that it reads.
pub(super) const PIECE_BYTES: usize = 4096;

static CONSOLE: OnceLock<Console> = OnceLock::new();

struct Console {
    texts: SyncSender<Text>,
    state: Arc<State>,
}

enum Text {
    Out(Out),
    /// The live line has changed.
    Look,
}

/// State shared by the thread and its callers. All accesses are relaxed: the texts themselves go
/// through the channel, and the numbers are only compared, again and again.
#[derive(Default)]
struct State {
    line: Mutex<Option<Line>>,
    /// A [`Text::Look`] is in the queue already.
    is_asked_to_look: AtomicBool,
    /// Texts put into the queue, and texts written.
    given: AtomicU64,
    done: AtomicU64,
    /// Pieces written: rises as long as the reader reads.
    pieces: AtomicU64,
    /// `pieces` plus 1 when the reader was given up; 0 if it never was.
    given_up_at: AtomicU64,
    /// Texts without room: all of them, and those not reported yet.
    left_out: AtomicU64,
    left_out_untold: AtomicU64,
    /// The first failure of a write.
    fault: OnceLock<String>,
}

/// Starts the thread. If it can't be started, each thread writes its own texts.
pub(super) fn start() {
    if CONSOLE.get().is_some() {
        return;
    }
    let (texts, queue) = sync_channel(TEXTS_MAX);
    let state = Arc::new(State::default());
    let shared = Arc::clone(&state);
    let thread = thread::Builder::new().name("verbline-stderr".into()).spawn(move || write_texts(&queue, &shared));
    if thread.is_ok() {
        // If a second thread came first, its console stays, and this thread ends with its channel.
        let _ = CONSOLE.set(Console { texts, state });
    }
}

/// Queues `text` in the form of the log. Never waits.
pub(super) fn say(text: String) {
    put(said::formed(text));
}

/// Queues a text unchanged. Never waits.
pub(super) fn put(out: Out) {
    match CONSOLE.get() {
        Some(console) => console.give(Text::Out(out)),
        // A failure could not be reported anywhere.
        None => _ = io::stderr().write_all(words_of(out).as_bytes()),
    }
}

/// The part of a text for standard error: nothing if the journal takes it.
fn words_of(out: Out) -> String {
    match out {
        Out::Words(words) => words,
        Out::Entry { bytes, .. } if journal::send(&bytes) => String::new(),
        Out::Entry { words, .. } => words,
    }
}

/// Draws `line` in place of the one before, or removes that one. Never waits.
pub(super) fn show(line: Option<Line>) {
    let Some(console) = CONSOLE.get() else { return };
    *console.state.line() = line;
    if !console.state.is_asked_to_look.swap(true, Ordering::Relaxed) {
        console.give(Text::Look);
    }
}

/// Waits until all is written, or until the reader has read nothing for `patience`; `None` has no
/// limit. A reader that was given up and has read nothing since is not waited for again.
pub(super) fn flush(patience: Option<Duration>) {
    let Some(console) = CONSOLE.get() else { return };
    rate::left_out(true).into_iter().for_each(put);
    let (mut pieces, mut since) = (0, Instant::now());
    while !console.state.is_done() {
        let now = console.state.pieces.load(Ordering::Relaxed);
        if now != pieces {
            (pieces, since) = (now, Instant::now());
        } else if let Some(patience) = patience {
            let was_given_up = console.state.given_up_at.load(Ordering::Relaxed) == now + 1;
            if was_given_up || since.elapsed() > patience {
                return console.state.given_up_at.store(now + 1, Ordering::Relaxed);
            }
        }
        thread::sleep(WAIT_STEP);
    }
}

/// The number of texts that were never written, and the reason: standard error was not read, or
/// could not be written. Waits first, like [`flush`], until all texts are written.
pub(super) fn left_out() -> (u64, String) {
    let Some(Console { state, .. }) = CONSOLE.get() else { return (0, String::new()) };
    flush(Some(PATIENCE));
    let why = match state.fault.get() {
        None => "standard error took nothing".to_owned(),
        Some(fault) => format!("standard error could not be written: {fault}"),
    };
    (state.left_out.load(Ordering::Relaxed), why)
}

impl Console {
    fn give(&self, text: Text) {
        let (state, is_look) = (&self.state, matches!(text, Text::Look));
        state.given.fetch_add(1, Ordering::Relaxed);
        if self.texts.try_send(text).is_ok() {
            return;
        }
        state.given.fetch_sub(1, Ordering::Relaxed);
        if is_look {
            state.is_asked_to_look.store(false, Ordering::Relaxed);
        } else {
            state.left_out.fetch_add(1, Ordering::Relaxed);
            state.left_out_untold.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl State {
    fn line(&self) -> MutexGuard<'_, Option<Line>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed) >= self.given.load(Ordering::Relaxed)
            && self.left_out_untold.load(Ordering::Relaxed) == 0
    }
}

/// The writing thread.
fn write_texts(queue: &Receiver<Text>, state: &State) {
    let mut screen = Screen { drawn: String::new() };
    loop {
        let (given, texts, mut words) = match queue.recv_timeout(LOOK_EVERY) {
            Ok(Text::Out(out)) => (1, 1, words_of(out)),
            Ok(Text::Look) => {
                state.is_asked_to_look.store(false, Ordering::Relaxed);
                (1, 0, String::new())
            }
            Err(RecvTimeoutError::Timeout) => (0, 0, String::new()),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        words.extend(rate::left_out(false).into_iter().map(words_of));
        let untold = state.left_out_untold.swap(0, Ordering::Relaxed);
        if untold > 0 {
            let told = format!("warning: {} texts were left out here, as nothing was taken\n", count(untold));
            words += &words_of(said::formed(told));
        }
        let line = state.line().clone();
        if let Err(error) = screen.show(&words, line.as_ref(), &state.pieces) {
            state.left_out.fetch_add(texts, Ordering::Relaxed);
            let _ = state.fault.set(error.to_string());
        }
        state.done.fetch_add(given, Ordering::Relaxed);
    }
}

/// The state of the terminal.
struct Screen {
    /// The drawn live line; empty if there is none.
    drawn: String,
}

impl Screen {
    /// Writes `words` in place of the live line, and `line` below them.
    fn show(&mut self, words: &str, line: Option<&Line>, pieces: &AtomicU64) -> io::Result<()> {
        let wanted = line.map(|line| line.fit(columns())).unwrap_or_default();
        if words.is_empty() && wanted == self.drawn {
            return Ok(());
        }
        let erase = if self.drawn.is_empty() { "" } else { "\r\x1b[2K" };
        let all = format!("{erase}{words}{wanted}");
        self.drawn = wanted;
        all.as_bytes().chunks(PIECE_BYTES).try_for_each(|piece| {
            io::stderr().write_all(piece)?;
            pieces.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
    }
}

/// The terminal's current width.
fn columns() -> usize {
    const USUAL: usize = 80;
    match tcgetwinsize(io::stderr()).map(|size| usize::from(size.ws_col)) {
        Ok(0) | Err(_) => USUAL,
        Ok(columns) => columns,
    }
}
