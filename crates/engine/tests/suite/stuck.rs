//! A stop has a limit: it names a thread that does not return, with its call and the time since. A
//! run that one of its own threads stops ends all the same.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::peers::Peers;
use crate::common::{PATIENCE, desk, fed, one_lcore, plan, registry, until};
use verbline_engine::{
    Acceptor, Answer, ConnectionRequest, EngineError, Next, Outputs, Registry, Running, Runtime, STOP_LIMIT, Stage,
    StageSpec, Stuck,
};
use verbline_mem::Batch;
use verbline_verbs::connection::ConnectOptions;

const LIMIT: Duration = Duration::from_millis(300);

/// The time that a test needs on a loaded machine, beyond the limit.
const SLACK: Duration = Duration::from_secs(5);

/// The call in which a stage or an acceptor waits until its test releases it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    Process,
    Poll,
    Stop,
    Drop,
    Decide,
}

/// Waits in one of its calls, and reports its arrival there.
struct Waits {
    at: Where,
    there: Sender<()>,
    go: Receiver<()>,
}

impl Waits {
    fn come(&self, at: Where) {
        if at == self.at {
            let _ = self.there.send(());
            let _ = self.go.recv();
        }
    }
}

impl Stage for Waits {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        input.clear();
        self.come(Where::Process);
    }

    fn poll(&mut self, _: &mut Outputs<'_>) -> Next {
        self.come(Where::Poll);
        Next::Done
    }

    fn stop(&mut self, _: &mut Outputs<'_>) {
        self.come(Where::Stop);
    }
}

impl Acceptor for Waits {
    fn decide(&mut self, _: &ConnectionRequest<'_>) -> Answer {
        self.come(Where::Decide);
        Answer::reject()
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.come(Where::Drop);
    }
}

/// An app with a waiting stage and acceptor; the receiver of their arrival; and the sender that
/// releases them.
fn app(at: Where) -> (Registry, Receiver<()>, Sender<()>) {
    let ((there, is_there), (goes, go)) = (channel(), channel());
    let waits = Arc::new(Mutex::new(Some(Waits { at, there, go })));
    let mut registry = registry();
    let (of_stage, of_acceptor) = (Arc::clone(&waits), waits);
    let spec = StageSpec { summary: "waits", ..StageSpec::default() };
    registry.stage("waits", spec, move |_| Ok(Box::new(of_stage.lock().unwrap().take().unwrap())));
    registry.acceptor("waits", move |_| Ok(Box::new(of_acceptor.lock().unwrap().take().unwrap())));
    (registry, is_there, goes)
}

fn start(registry: &Registry, text: &str) -> Running {
    Runtime::build(&plan(registry, text), registry).unwrap().start().unwrap()
}

/// Stops a run that doesn't end, and returns the stuck threads, and the message about them.
#[track_caller]
fn stop_in_vain(running: Running) -> (Stuck, String) {
    let began = Instant::now();
    let error = running.stop_within(LIMIT).unwrap_err();
    assert!(began.elapsed() < LIMIT + Duration::from_millis(200) + SLACK, "{:?}", began.elapsed());
    let said = error.to_string();
    let EngineError::Stuck { limit, mut stuck, report } = error else { panic!("{error}") };
    assert_eq!((limit, stuck.len(), report.ended), (LIMIT, 1, false), "{stuck:?}");
    let stuck = stuck.remove(0);
    let failure = &report.failures[0];
    assert_eq!((&failure.stage, failure.panicked), (&stuck.stage, false));
    assert!(failure.message.starts_with(&stuck.who) && failure.message.contains(stuck.place), "{failure:?}");
    (stuck, said)
}

// Regression: it held the run until it was freed, and the answer was Ok.
#[test]
fn a_stage_that_does_not_return_is_named_with_its_call_and_since_when() {
    for (at, call) in [
        (Where::Process, "in `process`"),
        (Where::Poll, "in `poll` (or `timers`, `operations`, `fd_ready`)"),
        (Where::Stop, "in `stop`"),
        (Where::Drop, "in its `Drop`"),
    ] {
        let (registry, is_there, go) = app(at);
        let text = one_lcore("event", &fed("count = 4, polite = true", "use = \"waits\""))
            .replace("[lcore.only]", "[lcore.only]\ndrain = \"100ms\"");
        let running = start(&registry, &text);
        let mut least = Duration::ZERO;
        if matches!(at, Where::Process | Where::Poll) {
            is_there.recv_timeout(PATIENCE).unwrap();
            std::thread::sleep(Duration::from_millis(200));
            least = Duration::from_millis(200) + LIMIT;
        }
        let (stuck, said) = stop_in_vain(running);
        assert_eq!((stuck.lcore.as_str(), stuck.stage.as_deref()), ("only", Some("next")));
        assert_eq!((stuck.who.as_str(), stuck.place), ("stage.next", call));
        assert!(stuck.since >= least && stuck.since < least + LIMIT + SLACK, "{stuck:?}");
        assert!(said.contains(&format!("stage.next (lcore.only) has been {call} for ")), "{said}");
        drop(go);
    }
}

struct Silent;

impl Stage for Silent {}

/// The plan of a port whose acceptor waits.
fn door(registry: &mut Registry, port: u16) -> String {
    let spec = StageSpec { outputs: &["out"], summary: "is silent", ..StageSpec::default() };
    registry.stage("desk", spec, |_| Ok(Box::new(Silent)));
    desk::server(port, "acceptor = \"waits\"\nconnections_max = 2\nrx_shared_wr = 64\ntx_depth_wr = 16\n")
}

// Regression: with `drain = "100ms"` it took the seven seconds that the acceptor slept.
#[test]
fn an_acceptor_that_does_not_return_is_named_and_the_lcores_end() {
    let (mut registry, is_there, go) = app(Where::Decide);
    let text = door(&mut registry, 7392);
    let running = start(&registry, &text);
    let mut peers = Peers::new(7392);
    let asked = peers.begin(&ConnectOptions::default()).unwrap();
    is_there.recv_timeout(PATIENCE).unwrap();
    let (stuck, _) = stop_in_vain(running);
    assert_eq!((stuck.who.as_str(), stuck.place), ("acceptor `waits` of port.door", "in `decide`"));
    assert_eq!(stuck.stage, None);
    assert!(stuck.since >= LIMIT / 2, "{stuck:?}");
    drop((go, asked));
}

// Regression: the drop, like a start that fails, waited until the acceptor returned.
#[test]
fn an_acceptor_that_does_not_return_keeps_no_runtime_that_never_started() {
    let (mut registry, is_there, go) = app(Where::Decide);
    let text = door(&mut registry, 7393);
    let mut runtime = Runtime::build(&plan(&registry, &text), &registry).unwrap();
    runtime.connect(|| false).unwrap();
    let mut peers = Peers::new(7393);
    let asked = peers.begin(&ConnectOptions::default()).unwrap();
    is_there.recv_timeout(PATIENCE).unwrap();
    let (dropped, is_dropped) = channel();
    let drops = std::thread::spawn(move || {
        drop(runtime);
        let _ = dropped.send(());
    });
    let in_time = is_dropped.recv_timeout(STOP_LIMIT + SLACK);
    drop((go, asked));
    drops.join().unwrap();
    assert_eq!(in_time, Ok(()), "it waits for the acceptor");
}

/// Holds its own run, and stops or drops it.
struct Ends {
    run: Arc<Mutex<Option<Running>>>,
    stops: bool,
    said: Sender<String>,
}

impl Stage for Ends {
    fn poll(&mut self, _: &mut Outputs<'_>) -> Next {
        let Some(running) = self.run.lock().unwrap().take() else { return Next::Idle };
        match self.stops {
            true => {
                let error = running.stop().unwrap_err();
                let EngineError::StoppedInside { report, .. } = &error else { panic!("{error}") };
                assert!(!report.ended);
                self.said.send(error.to_string()).unwrap();
            }
            false => drop(running),
        }
        Next::Done
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.said.send("dropped".to_owned());
    }
}

// Regression: it panicked ("Resource deadlock avoided"), and nobody was told of anything.
#[test]
fn a_stage_that_stops_or_drops_its_own_run_is_told_and_the_run_ends_behind_it() {
    for stops in [true, false] {
        let (mut registry, run, (said, heard)) = (registry(), Arc::<Mutex<Option<Running>>>::default(), channel());
        let own = Arc::clone(&run);
        let spec = StageSpec { summary: "ends its run", ..StageSpec::default() };
        registry.stage("ends", spec, move |_| Ok(Box::new(Ends { run: Arc::clone(&own), stops, said: said.clone() })));
        let text = one_lcore("event", &fed("count = 1000000000, gap_us = 1000", "use = \"ends\""));
        let running = start(&registry, &text);
        until(&running, |report| report.stage("next").unwrap().polls > 0);
        *run.lock().unwrap() = Some(running);
        if stops {
            let words = heard.recv_timeout(PATIENCE).unwrap();
            assert!(words.starts_with("lcore.only stopped the run that it is a part of"), "{words}");
        }
        assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), "dropped", "the lcore ended");
    }
}

/// Takes its whole input away, and leaves a batch of another size.
struct Swaps {
    left: usize,
    seen: verbline_engine::Counter,
}

impl Stage for Swaps {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        let taken = std::mem::replace(input, Batch::with_capacity(self.left));
        self.seen.add(taken.len() as u64);
    }
}

// Regression: a batch without capacity took the input's place for good: no packets came in any
// more, without a word.
#[test]
fn a_stage_that_takes_its_input_away_is_given_the_next_one_all_the_same() {
    for left in [0, 1, 4096] {
        let mut registry = registry();
        let spec = StageSpec { summary: "swaps", ..StageSpec::default() };
        registry.stage("swaps", spec, move |context| Ok(Box::new(Swaps { left, seen: context.counter("seen") })));
        let text = one_lcore("event", &fed("count = 1000, gap_us = 1", "use = \"swaps\""));
        let report = crate::common::run(&registry, &text).unwrap();
        crate::common::assert_clean(&report);
        assert_eq!(
            report.stage("next").unwrap().counter("seen"),
            Some(1000),
            "{left} packets were left: {:?}",
            report.drops
        );
    }
}
