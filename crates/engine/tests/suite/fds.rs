//! Stages' descriptors: a ready one wakes a sleeping lcore, is examined by an lcore that never
//! sleeps, starves no other, and is reported once more when it is closed.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{OUT, PATIENCE, assert_clean, fed, one_lcore, plan, registry, run, run_for, until};
use rustix::event::{EventfdFlags, eventfd};
use verbline_engine::{
    DueTimer, FdId, FdInterest, FdNext, FdReady, Next, Opening, Outputs, Registry, Report, Running, Runtime, Stage,
    StageError, StageSpec, Tick,
};

const MS: Tick = 1_000_000;

fn event_fd() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

fn signal(fd: &OwnedFd) {
    assert_eq!(rustix::io::write(fd, &1_u64.to_ne_bytes()), Ok(8));
}

/// A registry with one kind of source, `watcher`.
fn watchers<S, F>(make: F) -> Registry
where
    S: Stage + 'static,
    F: Fn(&Opening<'_>) -> Result<S, StageError> + Send + Sync + 'static,
{
    let mut registry = registry();
    let spec = StageSpec { outputs: &["out"], source: true, summary: "watches descriptors", ..StageSpec::default() };
    registry.opening_stage("watcher", spec, |_| Ok(()), move |(), opening| Ok(Box::new(make(opening)?)));
    registry
}

fn text(idle: &str, keys: &str) -> String {
    let stages = format!(
        r#"
        [stage.watcher]
        use = "watcher"
        lcore = "only"
        pool = "p"
        out = {{ out = "stage.sink" }}
        {keys}
        [stage.sink]
        use = "sink"
        lcore = "only"
        params = {{ any_order = true }}
        "#
    );
    one_lcore(idle, &stages)
}

fn start(registry: &Registry, text: &str) -> Running {
    Runtime::build(&plan(registry, text), registry).unwrap().start().unwrap()
}

fn told(report: &Report) -> u64 {
    report.stage("watcher").unwrap().fd_events
}

/// Reads eventfds, and sends a packet each time that one was ready.
struct Counting {
    fds: Vec<(FdId, Arc<OwnedFd>)>,
    /// Leaves the first one unread: it stays ready for ever.
    leaves_first: bool,
    per_fd: Vec<verbline_engine::Counter>,
}

impl Counting {
    fn new(context: &Opening<'_>, fds: &[Arc<OwnedFd>], look_every: Option<Duration>) -> Result<Counting, StageError> {
        let watch = |fd: &Arc<OwnedFd>| Ok((context.watch_fd(fd, FdInterest::Read, look_every)?, Arc::clone(fd)));
        let per_fd = (0..fds.len()).map(|at| context.counter(format!("fd{at}"))).collect();
        Ok(Counting { fds: fds.iter().map(watch).collect::<Result<_, StageError>>()?, leaves_first: false, per_fd })
    }
}

impl Stage for Counting {
    fn poll(&mut self, _: &mut Outputs<'_>) -> Next {
        Next::At(Tick::MAX)
    }

    fn fd_ready(&mut self, ready: FdReady, out: &mut Outputs<'_>) -> FdNext {
        assert!(ready.readable && !ready.writable && !ready.closed, "{ready:?}");
        let at = self.fds.iter().position(|(id, _)| *id == ready.fd).expect("one of its own");
        if !(self.leaves_first && at == 0) {
            assert_eq!(rustix::io::read(&self.fds[at].1, &mut [0; 8]), Ok(8));
        }
        self.per_fd[at].add(1);
        if let Some(mut packet) = out.alloc() {
            assert!(packet.set_len(8));
            packet.data_mut().copy_from_slice(&0_u64.to_le_bytes());
            out.send(OUT, packet);
        }
        FdNext::Watch
    }
}

#[test]
fn an_eventfd_wakes_an_lcore_that_sleeps() {
    const WAKES: u64 = 20;
    for idle in ["event", "adaptive"] {
        let fd = Arc::new(event_fd());
        let shared = Arc::clone(&fd);
        let registry = watchers(move |context| Counting::new(context, std::slice::from_ref(&shared), None));
        let running = start(&registry, &text(idle, ""));
        let (began, mut count) = (Instant::now(), 0);
        while running.snapshot().lcore("only").unwrap().woken_by("fd") < WAKES {
            assert!(began.elapsed() < PATIENCE, "{idle}: {:?}", running.snapshot());
            // Long enough for the lcore to fall asleep, unless the machine is busy.
            std::thread::sleep(Duration::from_millis(4));
            signal(&fd);
            count += 1;
            until(&running, |report| told(report) == count);
        }
        let report = running.stop().unwrap();
        assert_clean(&report);
        // Of the safety time-out, which is a second, there was no need.
        assert_eq!(report.lcore("only").unwrap().woken_by("timeout"), 0, "{idle}: {report:?}");
        assert_eq!((told(&report), report.stage("sink").unwrap().packets_in), (count, count));
    }
}

#[test]
fn what_is_ready_before_the_run_is_told_of() {
    let fd = Arc::new(event_fd());
    signal(&fd);
    let registry = watchers(move |context| Counting::new(context, std::slice::from_ref(&fd), None));
    let running = start(&registry, &text("event", ""));
    until(&running, |report| told(report) == 1);
    assert_clean(&running.stop().unwrap());
}

#[test]
fn an_lcore_that_never_sleeps_looks_as_often_as_it_is_asked_to() {
    let fd = Arc::new(event_fd());
    let shared = Arc::clone(&fd);
    let every = Duration::from_micros(200);
    let registry = watchers(move |context| Counting::new(context, std::slice::from_ref(&shared), Some(every)));
    let running = start(&registry, &text("poll", ""));
    for number in 0..20 {
        signal(&fd);
        until(&running, |report| told(report) > number);
    }
    let report = running.stop().unwrap();
    assert_clean(&report);
    assert_eq!(report.lcore("only").unwrap().sleeps, 0);
    // Polled only for its looks: not in each of the millions of turns.
    let watcher = report.stage("watcher").unwrap();
    assert!(watcher.polls < report.elapsed_ns / 100_000 + 100, "{watcher:?}");
}

#[test]
fn one_that_is_always_ready_starves_neither_another_nor_the_packets() {
    let fds = [Arc::new(event_fd()), Arc::new(event_fd())];
    signal(&fds[0]);
    let shared = fds.clone();
    let registry = watchers(move |context| {
        let every = Some(Duration::from_micros(50));
        Ok(Counting { leaves_first: true, ..Counting::new(context, &shared, every)? })
    });
    let generator = r#"
        [stage.gen]
        use = "generator"
        lcore = "only"
        pool = "p"
        out = { out = "stage.sink" }
        params = { count = 1_000_000_000, gap_us = 20 }
        "#;
    for idle in ["poll", "event", "adaptive"] {
        let running = start(&registry, &format!("{}{generator}", text(idle, "")));
        for number in 0..10 {
            signal(&fds[1]);
            until(&running, |report| report.stage("watcher").unwrap().counter("fd1") > Some(number));
        }
        until(&running, |report| report.stage("gen").unwrap().counter("made") > Some(1000));
        let report = running.stop().unwrap();
        assert_clean(&report);
        assert!(report.stage("watcher").unwrap().counter("fd0") > Some(10), "{report:#?}");
    }
}

/// Reads a socket to its end.
struct Reading {
    socket: UnixStream,
    read: verbline_engine::Counter,
    ends: Arc<Mutex<Vec<FdReady>>>,
}

impl Stage for Reading {
    fn poll(&mut self, _: &mut Outputs<'_>) -> Next {
        Next::At(Tick::MAX)
    }

    fn fd_ready(&mut self, ready: FdReady, _: &mut Outputs<'_>) -> FdNext {
        let mut bytes = [0; 64];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => break,
                Ok(read) => self.read.add(read as u64),
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                    assert!(!ready.closed);
                    return FdNext::Watch;
                }
            }
        }
        self.ends.lock().unwrap().push(ready);
        FdNext::Unwatch
    }
}

#[test]
fn a_descriptor_that_is_closed_is_told_of_once_and_lets_the_lcore_sleep() {
    let (near, mut far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    let ends = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&ends);
    let registry = watchers(move |context| {
        let socket = near.try_clone()?;
        context.watch_fd(&socket, FdInterest::Read, None)?;
        Ok(Reading { socket, read: context.counter("read"), ends: Arc::clone(&shared) })
    });
    let running = start(&registry, &text("event", ""));
    far.write_all(&[7; 100]).unwrap();
    until(&running, |report| report.stage("watcher").unwrap().counter("read") == Some(100));
    far.write_all(&[7; 200]).unwrap();
    drop(far);
    let report = until(&running, |report| report.stage("watcher").unwrap().fds_closed == 1);
    let before = told(&report);
    std::thread::sleep(Duration::from_millis(250));
    let report = running.stop().unwrap();
    assert_clean(&report);
    let watcher = report.stage("watcher").unwrap();
    assert_eq!((watcher.counter("read"), watcher.fd_events), (Some(300), before));
    let ends = ends.lock().unwrap();
    assert!(matches!(ends[..], [FdReady { readable: true, closed: true, .. }]), "{ends:?}");
    assert!(report.lcore("only").unwrap().asleep_ns > 40 * MS, "what is closed keeps no lcore awake");
}

/// Has timers as well, and arms one when its descriptor is ready.
struct Both {
    fd: Arc<OwnedFd>,
    due: u32,
}

impl Stage for Both {
    fn poll(&mut self, _: &mut Outputs<'_>) -> Next {
        if self.due < 5 { Next::At(Tick::MAX) } else { Next::Done }
    }

    fn fd_ready(&mut self, _: FdReady, out: &mut Outputs<'_>) -> FdNext {
        assert_eq!(rustix::io::read(&self.fd, &mut [0; 8]), Ok(8));
        // An lcore goes on serving a finished stage until the run ends.
        if self.due < 5 {
            assert!(out.arm_timer(out.now_ns() + 3 * MS, 0).is_some());
        }
        FdNext::Watch
    }

    fn timers(&mut self, due: &[DueTimer], _: &mut Outputs<'_>) {
        assert_eq!(due.len(), 1);
        self.due += 1;
        signal(&self.fd);
    }
}

#[test]
fn a_stage_has_timers_and_descriptors_and_ends_when_it_says() {
    let registry = watchers(move |context| {
        let fd = Arc::new(event_fd());
        signal(&fd);
        context.watch_fd(&fd, FdInterest::Read, Some(Duration::from_millis(1)))?;
        Ok(Both { fd, due: 0 })
    });
    for idle in ["poll", "event", "adaptive"] {
        // The source reports its end, or the run would go on for twenty seconds.
        let report = run(&registry, &text(idle, "timers_max = 4")).unwrap();
        assert_clean(&report);
        assert!(report.elapsed_ns < 5000 * MS, "{report:#?}");
        let watcher = report.stage("watcher").unwrap();
        assert!(watcher.timers_due == 5 && watcher.fd_events >= 5, "{watcher:?}");
        assert_eq!(report.lcore("only").unwrap().woken_by("timeout"), 0);
    }
}

/// Asks another thread for something as the run stops, and waits for its eventfd.
struct Finishes {
    fd: Arc<OwnedFd>,
    is_waiting: bool,
}

impl Stage for Finishes {
    fn stop(&mut self, _: &mut Outputs<'_>) {
        self.is_waiting = true;
        let fd = Arc::clone(&self.fd);
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            signal(&fd);
        });
    }

    fn fd_ready(&mut self, _: FdReady, _: &mut Outputs<'_>) -> FdNext {
        assert_eq!(rustix::io::read(&self.fd, &mut [0; 8]), Ok(8));
        self.is_waiting = false;
        FdNext::Watch
    }

    fn awaits_packets(&self) -> bool {
        self.is_waiting
    }
}

// Regression: an lcore does not sleep while it drains, and looked at no descriptor for which the
// stage had given no interval: the drain waited for its whole budget.
#[test]
fn a_stage_hears_of_its_descriptors_while_the_run_drains() {
    for idle in ["event", "poll"] {
        let mut registry = registry();
        let make = |(), context: &Opening<'_>| -> Result<Box<dyn Stage>, StageError> {
            let fd = Arc::new(event_fd());
            context.watch_fd(&fd, FdInterest::Read, None)?;
            Ok(Box::new(Finishes { fd, is_waiting: false }))
        };
        registry.opening_stage("finishes", StageSpec::default(), |_| Ok(()), make);
        let text = one_lcore(idle, &fed("count = 1, gap_us = 60000000", "use = \"finishes\""))
            .replace("[lcore.only]", "[lcore.only]\ndrain = \"20s\"");
        let running = start(&registry, &text);
        let began = Instant::now();
        let report = running.stop().unwrap();
        assert_clean(&report);
        assert!(began.elapsed() < Duration::from_secs(10), "{idle}: {:?}", began.elapsed());
    }
}

#[test]
fn what_cannot_be_watched_is_refused_with_the_stage() {
    let registry = watchers(|context| {
        let file = std::fs::File::open("/proc/self/exe")?;
        Counting::new(context, &[Arc::new(file.into())], None)
    });
    let error = run_for(&registry, &text("event", ""), Duration::from_millis(1)).unwrap_err();
    assert!(error.to_string().contains("stage.watcher (watcher): this descriptor is always ready"), "{error}");
}
