//! Keeps lcores from waiting for standard error when a stage panics.
//!
//! A panic calls the process's hook on the panicking thread, before it unwinds. The standard
//! library's hook writes to standard error, and blocks for as long as its reader does not read: a
//! stopped terminal, a full pipe. The lcore would stand still meanwhile, with all its ports and
//! stages, and a stop would have to leave it behind.
//!
//! So the first run of a process puts a hook in front of the existing one. If an lcore panics, the
//! message (and the backtrace, if `RUST_BACKTRACE` asks for one) goes to a thread that writes it;
//! on other threads the existing hook is called. A process whose own hook never blocks can keep it
//! on lcores too, by [`panic_hook_is_prompt`]. A panic's message is in the report in any case.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::Cell;
use std::io::{self, Write as _};
use std::panic::{self, PanicHookInfo};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// The most panics whose messages wait to be written. Later ones are in the reports alone.
const WAITING_MAX: usize = 64;

/// The message of an lcore's panic.
struct Words {
    text: String,
    backtrace: Backtrace,
}

thread_local! {
    static IS_LCORE: Cell<bool> = const { Cell::new(false) };
}

static IS_PROMPT: AtomicBool = AtomicBool::new(false);

/// Declares that the process's panic hook, set with [`std::panic::set_hook`], never blocks: lcores
/// that panic call it too. Call this before the first run starts.
pub fn panic_hook_is_prompt() {
    // Release pairs with the Acquire in `install`: the hook was set before.
    IS_PROMPT.store(true, Ordering::Release);
}

/// Installs the hook, once per process, if the process needs it.
pub(crate) fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    // Acquire pairs with the Release in `panic_hook_is_prompt`.
    if INSTALLED.get().is_some() || IS_PROMPT.load(Ordering::Acquire) {
        return Ok(());
    }
    let (words, waiting) = sync_channel(WAITING_MAX);
    // The writer sets the hook: a thread that unwinds can't, and a value that it drops may start a
    // run. Two runs may start at once: the hook of one is enough, and the other's writer ends.
    let set = move || {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| tell(info, &words, &*before)));
    };
    let writer = move || {
        INSTALLED.get_or_init(set);
        write(&waiting);
    };
    thread::Builder::new().name("vl-panics".into()).spawn(writer)?;
    INSTALLED.wait();
    Ok(())
}

/// Marks the calling thread as an lcore's.
pub(crate) fn this_is_an_lcore() {
    IS_LCORE.set(true);
}

fn tell(info: &PanicHookInfo<'_>, words: &SyncSender<Words>, before: &dyn Fn(&PanicHookInfo<'_>)) {
    if !IS_LCORE.try_with(Cell::get).unwrap_or(false) {
        return before(info);
    }
    let thread = thread::current();
    let text = format!("\nthread '{}' {info}", thread.name().unwrap_or("?"));
    // Full: the writer waits for standard error, and the report has the message.
    let _ = words.try_send(Words { text, backtrace: Backtrace::capture() });
}

fn write(waiting: &Receiver<Words>) {
    for Words { text, backtrace } in waiting {
        // There is no other place to report that standard error is closed.
        let _ = match backtrace.status() {
            BacktraceStatus::Captured => writeln!(io::stderr(), "{text}\n{backtrace}"),
            _ => writeln!(io::stderr(), "{text}"),
        };
    }
}
