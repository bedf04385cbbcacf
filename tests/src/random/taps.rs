//! Threads that hand messages to stages by injectors, and a stage that counts the messages that it
//! gets.
//!
//! A thread that pushes to a listener waits until the listener has heard it: a wake-up that is
//! missed makes it wait for as long as the safety time-out is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde::Deserialize;
use verbline::engine::{InjectorReport, Refused, StageError, Tick};
use verbline::prelude::*;

use super::marks::{Counters, DROPS, LATE_NS, LISTENER, PART_BYTES, STAMP_BYTES, Stamps, fill, is_filled, stamp};

/// The most injectors of a plan.
const INJECTORS_MAX: usize = 2;
/// Longer than any packet.
const TOO_LONG: [u8; 1 << 12] = [0; 1 << 12];
/// One push in this many is of a message that is too long.
const TOO_LONG_ONE_IN: u32 = 32;
/// The interval at which a thread looks whether it was heard, and pushes refused messages again.
const LOOK: Duration = Duration::from_micros(20);
/// The longest time from one look to the next of a thread that gets its CPU.
const LOOK_MAX: Duration = Duration::from_millis(1);
/// The longest wait of a thread.
const WAIT_MAX: Duration = Duration::from_secs(3);

/// Counts shared by listeners and threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Taps(Arc<[Tap; INJECTORS_MAX]>);

/// The counts of one injector.
#[derive(Debug, Default)]
struct Tap {
    /// Messages that it took, and that its listener got.
    taken: AtomicU64,
    heard: AtomicU64,
}

pub(super) fn register(registry: &mut Registry, taps: &Taps) {
    let spec =
        StageSpec { source: true, drops: DROPS, summary: "hears what threads push, and tells", ..StageSpec::default() };
    let taps = taps.clone();
    registry.stage("listener", spec, move |context| Ok(Box::new(Listener::new(context, taps.clone())?)));
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListenerParams {
    node: u8,
    index: usize,
    /// Messages that come in all.
    count: u64,
}

struct Listener {
    params: ListenerParams,
    counters: Counters,
    stamps: Stamps,
    taps: Taps,
    came: u64,
}

impl Listener {
    fn new(context: &StageContext<'_>, taps: Taps) -> Result<Listener, StageError> {
        let params: ListenerParams = context.params()?;
        Ok(Listener { counters: Counters::new(context), stamps: Stamps::new(params.node), taps, came: 0, params })
    }
}

impl Stage for Listener {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        let came = input.len() as u64;
        for packet in input.as_slice() {
            self.counters.astray.add((!self.stamps.is_next(packet) || !is_filled(packet.data())).into());
        }
        self.counters.came.add(came);
        self.counters.drop_all(input, out);
        self.came += came;
        // Released: pairs with the Acquire of `hand_on`.
        self.taps.0[self.params.index].heard.store(self.came, Ordering::Release);
    }

    fn poll(&mut self, _: &mut Outputs<'_>) -> Next {
        if self.came >= self.params.count { Next::Done } else { Next::At(Tick::MAX) }
    }
}

/// Threads that push, as the plan has them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pusher {
    pub(super) name: String,
    /// The mark of its messages, and their receiver.
    node: usize,
    to: usize,
    seed: u64,
    /// Messages of each thread.
    count: u64,
    batch: usize,
    threads: u64,
    pause_ns: u64,
}

/// The threads' counts of their pushes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pushed {
    taken: u64,
    full: u64,
    no_packet: u64,
    too_long: u64,
    stopped: u64,
    /// Waits that were as long as a safety time-out.
    late: u64,
}

impl Pusher {
    /// The number of its threads.
    pub(super) fn threads(&self) -> u64 {
        self.threads
    }

    /// Starts its threads.
    pub(super) fn start(&self, injector: &Injector, taps: &Taps) -> Vec<thread::JoinHandle<Pushed>> {
        let of = |number| {
            let (pusher, injector, taps) = (self.clone(), injector.clone(), taps.clone());
            thread::spawn(move || pusher.push(number, &injector, &taps.0[pusher.node % INJECTORS_MAX]))
        };
        (0..self.threads).map(of).collect()
    }

    /// Pushes all messages of one of its threads, unless the run ends before.
    fn push(&self, thread: u64, injector: &Injector, tap: &Tap) -> Pushed {
        let mut rng = Rng::with_seed(self.seed.wrapping_add(thread));
        let mut pushed = Pushed::default();
        while pushed.taken < self.count && pushed.stopped == 0 {
            if rng.u32(..TOO_LONG_ONE_IN) == 0 {
                pushed.count(0, injector.try_push(&TOO_LONG).err());
            }
            let most = (self.count - pushed.taken).min(self.batch as u64) as usize;
            let messages: Vec<Vec<u8>> = (1..=rng.usize(1..=most) as u32)
                .map(|further| {
                    let mut message = vec![0; rng.usize(STAMP_BYTES..=PART_BYTES)];
                    stamp(&mut message, self.node, thread as usize, self.to as u8, pushed.taken as u32 + further);
                    fill(&mut message);
                    message
                })
                .collect();
            let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
            let (taken, why) = injector.try_push_all(&messages);
            pushed.count(taken as u64, why);
            if why.is_some() {
                thread::sleep(LOOK);
            }
            if self.to >= LISTENER {
                pushed.late += u64::from(!hand_on(taken as u64, tap));
            }
            thread::sleep(Duration::from_nanos(rng.u64(..=self.pause_ns)));
        }
        pushed
    }

    /// Differences between the report and the pushers' counts. Late waits don't count if other
    /// programs `kept` the lcores from their CPUs.
    pub(super) fn faults(&self, pushed: &[Pushed], report: &InjectorReport, kept: bool) -> Vec<String> {
        let sum = |figure: fn(&Pushed) -> u64| pushed.iter().map(figure).sum::<u64>();
        let figures = [
            ("taken and pushed", sum(|pushed| pushed.taken), report.pushed),
            ("popped and pushed", report.popped, report.pushed),
            ("refused_full", sum(|pushed| pushed.full), report.refused_full),
            ("refused_no_packet", sum(|pushed| pushed.no_packet), report.refused_no_packet),
            ("refused_too_long", sum(|pushed| pushed.too_long), report.refused_too_long),
            ("waits as long as a safety time-out, and none", if kept { 0 } else { sum(|pushed| pushed.late) }, 0),
        ];
        let wrong = figures.into_iter().filter(|(_, left, right)| left != right);
        wrong.map(|(what, left, right)| format!("injector.{}: {what}: {left} and {right}", self.name)).collect()
    }
}

impl Pushed {
    fn count(&mut self, taken: u64, why: Option<Refused>) {
        self.taken += taken;
        let refused = match why {
            None => return,
            Some(Refused::Full) => &mut self.full,
            Some(Refused::NoPacket) => &mut self.no_packet,
            Some(Refused::TooLong { .. }) => &mut self.too_long,
            Some(_) => &mut self.stopped,
        };
        *refused += 1;
    }
}

/// Waits until the listener has heard the taken messages. False if that took as long as a safety
/// time-out.
fn hand_on(taken: u64, tap: &Tap) -> bool {
    // Relaxed: a count that no other memory depends on.
    let all = tap.taken.fetch_add(taken, Ordering::Relaxed) + taken;
    // Acquire: pairs with the Release of `Listener::process`.
    wait_until(|| tap.heard.load(Ordering::Acquire) >= all, WAIT_MAX) < Duration::from_nanos(LATE_NS)
}

/// Waits until this is so, or for this long. Returns the time that it took, without that for which
/// this thread itself was kept from a CPU: a look that comes late says nothing of the lcore.
pub(super) fn wait_until(is_so: impl Fn() -> bool, most: Duration) -> Duration {
    let (mut waited, mut before) = (Duration::ZERO, Instant::now());
    while !is_so() && waited < most {
        thread::sleep(LOOK);
        let now = Instant::now();
        waited += (now - before).min(LOOK_MAX);
        before = now;
    }
    waited
}
