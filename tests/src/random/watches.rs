//! A stage that has its lcore watch sockets, and a thread that writes to their other ends and hangs
//! up some of them.
//!
//! The thread waits until the stage has read what it wrote: a wake-up that is missed makes it wait
//! for as long as the safety time-out is.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use serde::Deserialize;
use verbline::engine::{Counter, FdId, FdInterest, FdNext, FdReady, Opening, StageError, Tick};
use verbline::plan::{Asked, Needs};
use verbline::prelude::*;

use super::judge::Judge;
use super::marks::{Counters, DROPS, LATE_NS, WATCHER};
use super::parts::WatchDraft;
use super::taps::wait_until;
use super::text::{Plan, line};

/// It waits for no longer.
const WAIT_MAX: Duration = Duration::from_secs(3);
/// The most that it writes at once.
const WRITE_MAX: usize = 40;

/// The ends of the sockets that the thread writes to, and how much the stage has read of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Sockets(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    far: Mutex<Vec<UnixStream>>,
    /// Bytes and ends of streams.
    heard: AtomicU64,
    is_over: AtomicBool,
}

impl Sockets {
    /// The run is over: nothing that is still to be read will be.
    pub(super) fn end(&self) {
        // Relaxed: no other memory depends on it.
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

pub(super) fn register(registry: &mut Registry, sockets: &Sockets) {
    let spec = StageSpec { source: true, drops: DROPS, summary: "reads sockets, and tells", ..StageSpec::default() };
    let sockets = sockets.clone();
    let describe = |context: &StageContext<'_>| Ok(context.params::<Params>()?);
    registry.opening_stage("watcher", spec, describe, move |params, opening| {
        Ok(Box::new(Watcher::new(params, opening, &sockets)?))
    });
    registry.needs("watcher", needs);
}

/// Both ends of each socket, a duplicate of the one that is watched, and what the lcore sleeps on.
fn needs(asked: &Asked<'_>) -> Needs {
    let sockets = asked.params().parse::<Params>().map_or(0, |params| params.writes.len() as u64);
    let descriptors = vec![("two ends and a duplicate of each socket", 3 * sockets), ("its wake set", 1)];
    Needs { descriptors, ..Needs::default() }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Of each socket: the bytes that are written to it, and whether it is hung up then.
    writes: Vec<(u64, bool)>,
    look_us: u64,
    /// Bytes that are read at once.
    read_max: usize,
}

struct Watcher {
    params: Params,
    counters: Counters,
    sockets: Sockets,
    near: Vec<Watched>,
    /// Calls by which it heard of descriptors, and those of them that said closed.
    told: Counter,
    told_closed: Counter,
    read: Counter,
    ended: Counter,
    astray: Counter,
}

struct Watched {
    id: FdId,
    stream: UnixStream,
    /// What comes in all, and whether its other end is closed then.
    bytes: u64,
    hangs_up: bool,
    read: u64,
    has_ended: bool,
}

impl Watcher {
    fn new(params: Params, opening: &Opening<'_>, sockets: &Sockets) -> Result<Watcher, StageError> {
        let mut near = Vec::new();
        let look_every = Duration::from_micros(params.look_us);
        for (bytes, hangs_up) in params.writes.iter().copied() {
            let (stream, far) = UnixStream::pair()?;
            stream.set_nonblocking(true)?;
            let id = opening.watch_fd(&stream, FdInterest::Read, Some(look_every))?;
            sockets.0.far.lock().unwrap_or_else(PoisonError::into_inner).push(far);
            near.push(Watched { id, stream, bytes, hangs_up, read: 0, has_ended: false });
        }
        let counter = |name: &str| opening.counter(name);
        Ok(Watcher {
            counters: Counters::new(opening),
            sockets: sockets.clone(),
            near,
            told: counter("told"),
            told_closed: counter("told_closed"),
            read: counter("read"),
            ended: counter("ended"),
            astray: counter("fds_astray"),
            params,
        })
    }

    fn is_over(&self) -> bool {
        let is_over = |one: &Watched| one.read == one.bytes && one.has_ended == one.hangs_up;
        self.near.iter().all(is_over)
    }
}

impl Watched {
    /// Reads this much once, or all that there is: what became of the stream, and whether what it
    /// read is what was written.
    fn read(&mut self, at_once: usize, all: bool) -> (u64, bool) {
        let before = self.read;
        let mut is_well = true;
        let mut bytes = [0; WRITE_MAX];
        loop {
            match self.stream.read(&mut bytes[..at_once]) {
                Ok(0) => {
                    is_well &= !std::mem::replace(&mut self.has_ended, true);
                    break;
                }
                Ok(len) => {
                    is_well &= bytes[..len].iter().zip(self.read..).all(|(byte, at)| *byte == at as u8);
                    self.read += len as u64;
                    if !all {
                        break;
                    }
                }
                Err(error) => {
                    is_well &= error.kind() == ErrorKind::WouldBlock && (all || self.read > before);
                    break;
                }
            }
        }
        (self.read - before, is_well)
    }
}

impl Stage for Watcher {
    fn fd_ready(&mut self, ready: FdReady, _: &mut Outputs<'_>) -> FdNext {
        self.told.add(1);
        self.told_closed.add(ready.closed.into());
        let Some(watched) = self.near.iter_mut().find(|watched| watched.id == ready.fd) else {
            self.astray.add(1);
            return FdNext::Watch;
        };
        let had_ended = watched.has_ended;
        // It is told of a closed one no more.
        let (read, is_well) = watched.read(self.params.read_max, ready.closed);
        let is_ready = ready.readable && !ready.writable && !had_ended;
        self.astray.add((!is_well || !is_ready || watched.has_ended != ready.closed).into());
        self.read.add(read);
        self.ended.add((watched.has_ended && !had_ended).into());
        let heard = read + u64::from(watched.has_ended && !had_ended);
        // Released: pairs with the Acquire of `Writer::write`.
        self.sockets.0.heard.fetch_add(heard, Ordering::Release);
        match watched.hangs_up || watched.read < watched.bytes {
            true => FdNext::Watch,
            false => FdNext::Unwatch,
        }
    }

    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        self.counters.drop_all(input, out);
    }

    fn poll(&mut self, _: &mut Outputs<'_>) -> Next {
        if self.is_over() { Next::Done } else { Next::At(Tick::MAX) }
    }
}

/// The thread that writes, as the plan has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Writer {
    seed: u64,
    pause_ns: u64,
    writes: Vec<(u64, bool)>,
}

impl Writer {
    /// Starts its thread, whose answer is how many of its waits were as long as a safety time-out.
    pub(super) fn start(&self, sockets: &Sockets) -> thread::JoinHandle<u64> {
        let (writer, sockets) = (self.clone(), sockets.clone());
        thread::spawn(move || writer.write(&sockets.0))
    }

    fn write(self, shared: &Shared) -> u64 {
        let mut rng = Rng::with_seed(self.seed);
        let far = std::mem::take(&mut *shared.far.lock().unwrap_or_else(PoisonError::into_inner));
        let mut far: Vec<_> = far.into_iter().zip(self.writes).map(|(far, writes)| (Some(far), 0, writes)).collect();
        let (mut written, mut late) = (0, 0);
        loop {
            let open: Vec<usize> = (0..far.len()).filter(|at| is_left(&far[*at])).collect();
            if open.is_empty() {
                // Those that don't hang up stay open, also if the stage has not read all of them.
                let rest = far.into_iter().filter_map(|(stream, ..)| stream);
                shared.far.lock().unwrap_or_else(PoisonError::into_inner).extend(rest);
                return late;
            }
            // Several are ready at once.
            for _ in 0..rng.usize(1..=open.len()) {
                let (stream, done, (bytes, hangs_up)) = &mut far[open[rng.usize(..open.len())]];
                let Some(socket) = stream else { continue };
                let len = rng.u64(..=WRITE_MAX as u64).min(*bytes - *done);
                let message: Vec<u8> = (*done..*done + len).map(|at| at as u8).collect();
                if socket.write_all(&message).is_err() {
                    // The run is over.
                    return late;
                }
                *done += len;
                written += len;
                if done == bytes && *hangs_up && rng.bool() {
                    *stream = None;
                    written += 1;
                }
            }
            // One late wait is enough, and each takes a second; the stage still gets the rest.
            let most = if late > 0 { Duration::ZERO } else { WAIT_MAX };
            // Acquire: pairs with the Release of `Watcher::fd_ready`.
            let is_heard = || shared.heard.load(Ordering::Acquire) >= written;
            let waited = wait_until(|| is_heard() || shared.is_over.load(Ordering::Relaxed), most);
            if shared.is_over.load(Ordering::Relaxed) {
                return late;
            }
            late += u64::from(waited >= Duration::from_nanos(LATE_NS));
            thread::sleep(Duration::from_nanos(rng.u64(..=self.pause_ns)));
        }
    }
}

/// Whether anything is to be written to it, or it is to be hung up.
fn is_left((stream, done, (bytes, hangs_up)): &(Option<UnixStream>, u64, (u64, bool))) -> bool {
    stream.is_some() && (done < bytes || *hangs_up)
}

impl WatchDraft {
    fn writes(&self) -> Vec<(u64, bool)> {
        let mut rng = Rng::with_seed(self.seed.into());
        (0..self.sockets).map(|_| (rng.u64(..=u64::from(self.bytes)), rng.bool())).collect()
    }

    fn writes_key(&self) -> String {
        let rows: Vec<String> = self.writes().iter().map(|(bytes, ends)| format!("[{bytes}, {ends}]")).collect();
        format!("writes = [{}]", rows.join(", "))
    }
}

impl Plan<'_> {
    /// What the thread is told that writes, in the run's own section.
    pub(super) fn writer(&mut self, watch: &WatchDraft) {
        let WatchDraft { seed, pause_ns, .. } = watch;
        line!(self, "writer = {{ seed = {seed}, pause_ns = {pause_ns}, {} }}", watch.writes_key());
    }

    pub(super) fn watch(&mut self, watch: &WatchDraft) {
        let WatchDraft { lcore, look_us, read_max, .. } = watch;
        let lcore = usize::from(*lcore) % self.cpus;
        line!(self, "[stage.s{WATCHER}]\nuse = \"watcher\"\nlcore = \"c{lcore}\"");
        line!(self, "params = {{ {}, look_us = {look_us}, read_max = {read_max} }}\n", watch.writes_key());
    }
}

impl Judge<'_> {
    /// All that was written has been read, and each stream that was hung up has ended once.
    pub(super) fn watches(&mut self) {
        let Some(told) = self.report.stage(&format!("s{WATCHER}")) else { return };
        let own = |counter: &str| told.counter(counter).unwrap_or(u64::MAX);
        self.equal(|| "descriptors astray, and none".into(), own("fds_astray"), 0);
        self.equal(|| "fd_events, twice".into(), told.fd_events, own("told"));
        self.equal(|| "fds_closed, twice".into(), told.fds_closed, own("told_closed"));
        self.equal(|| "streams that ended, and were closed".into(), own("ended"), own("told_closed"));
    }
}
