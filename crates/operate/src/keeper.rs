//! The thread that keeps the slowest packets of a run's last minutes, from its start on.
//!
//! ```text
//!   lcores ── one millisecond in N ──▶ keeper: an analysis, as a client of a trace has it
//!                                        ▲ looked at for those who ask
//! ```
//!
//! A run has one trace at a time, and the keeper's is one. It gives way to a client's trace
//! ([`Keeper::lend`]), and goes on after that.
//!
//! Guarantees: its memory is bounded, and memory for events is there from the start; no lcore waits
//! for it. A run whose plan doesn't ask for it has no such thread.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use verbline_engine::{Observer, Trace, TraceError, TraceEvent, TraceKind, TraceSpec};

use crate::protocol::Refusal;
use crate::trace::kept::{Kept, Pause};
use crate::trace::settings::TraceSettings;
use crate::trace::tallies::SLICES;
use crate::trace::{Analysis, Wanted, feed};

/// The longest time between two looks at the lcores' events; shorter if a larger part of the time
/// is recorded. So about two milliseconds are recorded between two looks.
const LOOK_EVERY_MS: u32 = 16;

/// The time for lcores to notice that a client's trace comes. An lcore whose stage does not return
/// notices nothing.
const GIVES_WAY: Duration = Duration::from_millis(100);

/// The time for the thread to take the last events of a run that has ended.
const GRACE: Duration = Duration::from_secs(1);

/// The most pauses that are kept apart; with more, the two oldest are joined.
const PAUSES_MAX: usize = 64;

/// The keeper's handle. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    settings: TraceSettings,
    desk: Mutex<Desk>,
    /// Notified when the desk changes.
    changed: Condvar,
    book: Mutex<Option<Book>>,
}

/// The state exchanged between the thread and its users.
#[derive(Debug, Default)]
struct Desk {
    observer: Option<Observer>,
    is_to_stop: bool,
    /// A client's trace is about to begin.
    is_lent: bool,
    /// The thread has the run's trace, or is beginning it.
    has_trace: bool,
    /// The thread has ended.
    is_done: bool,
}

/// The kept packets.
#[derive(Debug)]
struct Book {
    analysis: Analysis,
    last_ns: u64,
    /// The time of the last events taken, by the run's clock and by this process's.
    now_ns: u64,
    looked_at: Instant,
    pauses: VecDeque<Pause>,
    /// Only held: see [`make_room`].
    _between_room: Vec<Vec<u8>>,
}

/// Marks the thread as done when it is dropped, so that no one waits for it.
struct Done<'a>(&'a Shared);

/// A guard: a client's trace may begin while it exists.
pub(crate) struct Lent<'a>(&'a Shared);

impl Keeper {
    /// Starts the thread, which waits for the run.
    pub(crate) fn start(settings: TraceSettings) -> io::Result<Keeper> {
        let (desk, changed, book) = (Mutex::default(), Condvar::new(), Mutex::default());
        let shared = Arc::new(Shared { settings, desk, changed, book });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("vl-keeper".into()).spawn(move || {
            let done = Done(&own);
            own.keep();
            drop(done);
        })?;
        Ok(Keeper { shared, thread: Some(thread) })
    }

    /// Tells the thread that the run has started.
    pub(crate) fn observe(&self, observer: Observer) {
        lock(&self.shared.desk).observer = Some(observer);
        self.shared.changed.notify_all();
    }

    /// The kept packets; `None` before the start of the run. After its end, the result is complete.
    pub(crate) fn kept(&self) -> Option<Kept> {
        let desk = lock(&self.shared.desk);
        let is_over = desk.observer.as_ref().is_some_and(Observer::is_over);
        if is_over {
            drop(self.shared.changed.wait_timeout_while(desk, GRACE, |desk| !desk.is_done));
        } else {
            drop(desk);
        }
        lock(&self.shared.book).as_mut().map(Book::told)
    }

    /// Makes the thread give up the run's trace until a client's has begun.
    pub(crate) fn lend(&self) -> Result<Lent<'_>, Refusal> {
        let mut desk = lock(&self.shared.desk);
        desk.is_lent = true;
        self.shared.changed.notify_all();
        let lent = Lent(&self.shared);
        let gives_way = self.shared.changed.wait_timeout_while(desk, GIVES_WAY, |desk| desk.has_trace);
        let (desk, waited) = gives_way.unwrap_or_else(PoisonError::into_inner);
        drop(desk);
        match waited.timed_out() {
            false => Ok(lent),
            true => {
                let why = "an lcore has not heard yet that the run is to keep no packets while it is traced; ask again";
                Err(Refusal::new("busy", why))
            }
        }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        lock(&self.0.desk).is_lent = false;
    }
}

impl Drop for Done<'_> {
    fn drop(&mut self) {
        let mut desk = lock(&self.0.desk);
        (desk.is_done, desk.has_trace) = (true, false);
        self.0.changed.notify_all();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        lock(&self.shared.desk).is_to_stop = true;
        self.shared.changed.notify_all();
        let ended = self.thread.take().map(JoinHandle::join);
        if ended.is_some_and(|ended| ended.is_err()) {
            tracing::error!("the thread that keeps the slowest packets has panicked");
        }
    }
}

impl Shared {
    /// Keeps packets until the keeper is stopped or the run ends.
    fn keep(&self) {
        let is_awaited = |desk: &mut Desk| desk.observer.is_none() && !desk.is_to_stop;
        let desk = self.changed.wait_while(lock(&self.desk), is_awaited);
        let observer = desk.unwrap_or_else(PoisonError::into_inner).observer.clone();
        let Some(observer) = observer else { return };
        let mut trace = None;
        loop {
            trace = match trace.take() {
                Some(trace) => self.look(trace),
                None => match self.begin(&observer) {
                    Ok(trace) => trace,
                    Err(TraceError::Over) => return,
                    Err(error) => {
                        tracing::warn!(%error, "the slowest packets can't be kept");
                        return;
                    }
                },
            };
            let look_every = Duration::from_millis(self.settings.one_in.get().min(LOOK_EVERY_MS).into());
            let is_quiet = |desk: &mut Desk| !(desk.is_to_stop || desk.is_lent && desk.has_trace);
            let waited = self.changed.wait_timeout_while(lock(&self.desk), look_every, is_quiet);
            let (desk, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if desk.is_to_stop {
                drop(desk);
                trace.into_iter().for_each(|trace| self.end(trace));
                return;
            }
        }
    }

    /// Begins a trace. `None` if a client has one, or an lcore has not noticed the end of the last.
    fn begin(&self, observer: &Observer) -> Result<Option<Trace>, TraceError> {
        {
            let mut desk = lock(&self.desk);
            if desk.is_lent {
                return Ok(None);
            }
            // Set before the trace begins: a client that asks meanwhile waits for the result.
            desk.has_trace = true;
        }
        match observer.trace(&TraceSpec { filter: None, one_in: Some(self.settings.one_in) }) {
            Ok(trace) => {
                lock(&self.book).get_or_insert_with(|| Book::new(&trace, &self.settings)).go_on(trace.now_ns());
                Ok(Some(trace))
            }
            Err(error) => {
                self.has_no_trace();
                match error {
                    TraceError::Busy | TraceError::LcoreLate { .. } => Ok(None),
                    error => Err(error),
                }
            }
        }
    }

    /// Takes the new events. Returns the trace, unless it has ended.
    fn look(&self, mut trace: Trace) -> Option<Trace> {
        if trace.is_over() || lock(&self.desk).is_lent {
            self.end(trace);
            return None;
        }
        lock(&self.book).iter_mut().for_each(|book| book.take(&mut trace));
        Some(trace)
    }

    fn end(&self, mut trace: Trace) {
        trace.end();
        if let Some(book) = lock(&self.book).as_mut() {
            book.take(&mut trace);
            book.pause(trace.is_over());
        }
        drop(trace);
        self.has_no_trace();
    }

    fn has_no_trace(&self) {
        lock(&self.desk).has_trace = false;
        self.changed.notify_all();
    }
}

/// Prepares heap memory for the packets that will be kept, `slowest` of each slice, so that the
/// thread's memory does not grow with them. The blocks returned lie between the freed ones: malloc
/// gives free memory at the end of a heap back to the system (mallopt(3), M_TRIM_THRESHOLD), but
/// not memory between blocks in use.
fn make_room(slowest: usize) -> Vec<Vec<u8>> {
    /// Bytes of one packet, with all that the lcores did meanwhile.
    const PACKET_BYTES: usize = 4 << 10;
    const PACKETS_MAX: usize = 1 << 10;
    let packets = (slowest * SLICES as usize).min(PACKETS_MAX);
    // Written to, so that its pages are mapped.
    let (room, between): (Vec<_>, Vec<_>) =
        (0..packets / 8 + 1).map(|_| (vec![1_u8; 8 * PACKET_BYTES], vec![0])).unzip();
    drop(std::hint::black_box(room));
    between
}

impl Book {
    fn new(trace: &Trace, settings: &TraceSettings) -> Book {
        let last_ns = u64::try_from(settings.last.as_nanos()).unwrap_or(u64::MAX);
        let slowest = settings.slowest.into();
        let wanted = Wanted { at: None, above_ns: 0, packets: u64::MAX, first: 0, slowest, last_ns: Some(last_ns) };
        let analysis = Analysis::with_memory(feed::head(trace), wanted);
        let between_room = make_room(slowest);
        let (now_ns, looked_at) = (trace.now_ns(), Instant::now());
        Book {
            analysis,
            last_ns,
            now_ns,
            looked_at,
            pauses: VecDeque::with_capacity(PAUSES_MAX + 1),
            _between_room: between_room,
        }
    }

    fn take(&mut self, trace: &mut Trace) {
        let Book { analysis, now_ns, looked_at, .. } = self;
        (*now_ns, *looked_at) = (trace.now_ns(), Instant::now());
        trace.take(|lcore, event| analysis.add(lcore, event, &mut ()));
        for lcore in 0..trace.lcores().len() {
            analysis.add(lcore, TraceEvent::new(TraceKind::Lost, *now_ns, 0, trace.lost(lcore)), &mut ());
        }
        analysis.add(0, TraceEvent::new(TraceKind::Now, *now_ns, 0, 0), &mut ());
    }

    /// Called when a trace has ended, because of a client's trace or with the run.
    fn pause(&mut self, is_over: bool) {
        self.analysis.pause();
        if is_over {
            return;
        }
        self.pauses.push_back(Pause { from_ns: self.now_ns, to_ns: None });
        if self.pauses.len() > PAUSES_MAX {
            let oldest = self.pauses.pop_front();
            self.pauses.iter_mut().zip(oldest).for_each(|(next, oldest)| next.from_ns = oldest.from_ns);
        }
    }

    /// Called when a new trace has begun.
    fn go_on(&mut self, now_ns: u64) {
        (self.now_ns, self.looked_at) = (now_ns, Instant::now());
        self.pauses.iter_mut().for_each(|pause| _ = pause.to_ns.get_or_insert(now_ns));
        let since_ns = now_ns.saturating_sub(self.last_ns);
        self.pauses.retain(|pause| pause.to_ns.is_none_or(|to_ns| to_ns > since_ns));
    }

    fn told(&mut self) -> Kept {
        let Book { analysis, last_ns, now_ns, looked_at, pauses, .. } = self;
        let (mut now_ns, last_ns) = (*now_ns, *last_ns);
        if pauses.back().is_some_and(|pause| pause.to_ns.is_none()) {
            // Events are not taken meanwhile, and kept packets get older.
            now_ns += u64::try_from(looked_at.elapsed().as_nanos()).unwrap_or(0);
            analysis.add(0, TraceEvent::new(TraceKind::Now, now_ns, 0, 0), &mut ());
        }
        let since_ns = now_ns.saturating_sub(last_ns);
        let pauses = pauses.iter().filter(|pause| pause.to_ns.is_none_or(|to_ns| to_ns > since_ns)).copied();
        Kept { now_ns, last_ns, pauses: pauses.collect(), found: analysis.summary() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The message of a thread that panicked with the lock is logged; the data can still be used.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
