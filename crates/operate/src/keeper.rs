//! The thread that keeps the slowest packets of a run's last time, from its start on.
//!
//! ```text
//!   lcores ── one millisecond in N ──▶ keeper: an analysis, as a client of a trace has it
//!                                        ▲ looked at for those who ask
//! ```
//!
//! A run has one trace at a time, and this is one. It gives way to a client's ([`Keeper::lend`]),
//! and goes on once that has ended.
//!
//! Guarantees: its memory is bounded, and what events need of it is there from the start; no lcore
//! waits for it. A run whose plan doesn't ask for it has no such thread.

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

/// Between two looks at what the lcores have handed out, at most; less if more than one millisecond
/// in that many is recorded. So about two are recorded between two looks.
const LOOK_EVERY_MS: u32 = 16;

/// For the lcores to hear that a client's trace comes. An lcore whose stage does not return hears
/// nothing.
const GIVES_WAY: Duration = Duration::from_millis(100);

/// For the thread to take what is left of a run that is over.
const GRACE: Duration = Duration::from_secs(1);

/// Pauses that are told apart; beyond them the two oldest count as one.
const PAUSES_MAX: usize = 64;

/// See the top of this file. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    settings: TraceSettings,
    desk: Mutex<Desk>,
    /// Something at the desk has changed.
    changed: Condvar,
    book: Mutex<Option<Book>>,
}

/// What the thread and the others tell each other.
#[derive(Debug, Default)]
struct Desk {
    observer: Option<Observer>,
    is_to_stop: bool,
    /// A client's trace is about to begin.
    is_lent: bool,
    /// The thread has the run's trace, or begins it.
    has_trace: bool,
    /// The thread has nothing more to take.
    is_done: bool,
}

/// What is kept.
#[derive(Debug)]
struct Book {
    analysis: Analysis,
    last_ns: u64,
    /// When it took what had come last, by the run's clock and by this process's.
    now_ns: u64,
    looked_at: Instant,
    pauses: VecDeque<Pause>,
    /// Held, and no more.
    _between_room: Vec<Vec<u8>>,
}

/// The thread's: once it is dropped nobody waits for the thread.
struct Done<'a>(&'a Shared);

/// While it lasts a client's trace may begin.
pub(crate) struct Lent<'a>(&'a Shared);

impl Keeper {
    /// Waits for the run.
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

    /// The run has started.
    pub(crate) fn observe(&self, observer: Observer) {
        lock(&self.shared.desk).observer = Some(observer);
        self.shared.changed.notify_all();
    }

    /// What is kept; `None`: the run has not started. Of a run that is over it is all there is.
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

    /// Has the thread give up the run's trace until a client's has begun.
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
    /// Keeps, until it is told to stop or the run is over.
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

    /// Begins a trace; `None`: a client has one, or an lcore has not heard of its end.
    fn begin(&self, observer: &Observer) -> Result<Option<Trace>, TraceError> {
        {
            let mut desk = lock(&self.desk);
            if desk.is_lent {
                return Ok(None);
            }
            // Before it has it: a client that asks meanwhile waits for what becomes of that.
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

    /// Takes what has come. Gives the trace back, unless that has ended.
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

/// Has memory at hand for the packets that come to be kept, this many of each slice, so that what
/// the thread has does not grow with them. Between two of what it gives there is room: what is free
/// at the end of a thread's memory is given back to the system (mallopt(3), M_TRIM_THRESHOLD), what
/// is between others is not.
fn make_room(slowest: usize) -> Vec<Vec<u8>> {
    /// Of one packet, with all that lcores did meanwhile.
    const PACKET_BYTES: usize = 4 << 10;
    const PACKETS_MAX: usize = 1 << 10;
    let packets = (slowest * SLICES as usize).min(PACKETS_MAX);
    // Written to, so that its pages are there.
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

    /// A trace has ended, for a client's or with the run.
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

    /// It goes on.
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
            // Nobody looks meanwhile, and what is kept gets older.
            now_ns += u64::try_from(looked_at.elapsed().as_nanos()).unwrap_or(0);
            analysis.add(0, TraceEvent::new(TraceKind::Now, now_ns, 0, 0), &mut ());
        }
        let since_ns = now_ns.saturating_sub(last_ns);
        let pauses = pauses.iter().filter(|pause| pause.to_ns.is_none_or(|to_ns| to_ns > since_ns)).copied();
        Kept { now_ns, last_ns, pauses: pauses.collect(), found: analysis.summary() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked under it has its message logged; what lies there can be told.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
