//! Measures the cost of waking a sleeping thread on this machine, once a process for each pair of
//! CPUs.
//!
//! The idle policy weighs a sleep against that cost. An lcore wakes up that long before it expects
//! an arrival, and by default waits awake for at most [`SPIN_MAX_WAKES`] times as long.
//!
//! The measurement covers an lcore's real cost: from the ring of a doorbell on one lcore's CPU to
//! the first instruction of the sleeper on the other lcore's CPU. Both threads are pinned, and the
//! sleeper sleeps for long enough that its CPU is idle. Without pinning, two threads that share one
//! CPU would time a context switch. A disturbance only makes a wake-up longer, by up to
//! milliseconds. A batch therefore counts if most of it agrees, and the measurement counts if two
//! batches agree.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use core_affinity::CoreId;
use verbline_plan::{IdlePolicy, Lcore, Plan};
use verbline_ring::{Pause, Sleeper, Waker, doorbell};

use crate::control::event_fd::{self, EventFd};
use crate::errors::guarded::lock;
use crate::idle::forecast::Objective;
use crate::idle::policy::{Budget, SpinFrom};

/// Wake-ups in a batch.
const TRIPS: usize = 16;
/// How long the sleeper is left asleep before each wake-up.
const ASLEEP: Duration = Duration::from_micros(100);
/// The time for all batches together, if none is clean.
const PATIENCE: Duration = Duration::from_millis(200);
/// The time for one thread to hear from the other.
const ANSWER: Duration = Duration::from_secs(1);
/// A default outside these bounds is useless.
const COST_NS: std::ops::RangeInclusive<u64> = 2_000..=500_000;
/// The cost of a bare eventfd wake-up on a small VM, for machines where nothing can be measured.
const GUESS_NS: u64 = 50_000;

/// The default objective: one batch in a hundred may be late, and the lcore does not wait awake for
/// longer than `SPIN_MAX_WAKES` wake-ups take. A hundred unpredictable arrivals a second then take
/// a twentieth of a core.
const LATE_SHARE: f64 = 0.01;
const SPIN_MAX_WAKES: u64 = 20;
/// With an objective from the plan, this bounds the cost of a feed that has ended.
const SPIN_MAX_NS: u64 = 1_000_000_000;

/// The cost of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WakeCost {
    ns: u64,
    /// Whether it was measured undisturbed; otherwise it is the least seen.
    clean: bool,
}

/// Returns an lcore's figures for idling. Figures missing from the plan are measured, once a
/// process, and only for lcores that spin before they sleep.
pub(crate) fn budget(plan: &Plan, lcore: &Lcore) -> Budget {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let cost = match lcore.idle {
        IdlePolicy::Poll | IdlePolicy::Event => WakeCost { ns: 0, clean: true },
        IdlePolicy::Adaptive => wake_cost(plan, lcore),
    };
    let learns = lcore.idle == IdlePolicy::Adaptive && lcore.spin.is_none();
    let spin_max_ns = match (lcore.spin_max, lcore.late_share) {
        (Some(spin_max), _) => ns(spin_max),
        (None, Some(_)) => SPIN_MAX_NS,
        (None, None) => cost.ns.saturating_mul(SPIN_MAX_WAKES),
    };
    let late_share = lcore.late_share.unwrap_or(LATE_SHARE);
    let objective = learns.then_some(Objective { late_share, spin_max_ns, is_held: lcore.late_share.is_some() });
    let (spin_ns, spin_from) = match (lcore.spin.or(lcore.spin_max), lcore.idle) {
        (_, IdlePolicy::Event) | (None, IdlePolicy::Poll) => (0, SpinFrom::Plan),
        (Some(spin), _) => (ns(spin), SpinFrom::Plan),
        (None, IdlePolicy::Adaptive) if cost.clean => (spin_max_ns, SpinFrom::Measured),
        (None, IdlePolicy::Adaptive) => (spin_max_ns, SpinFrom::Disturbed),
    };
    let dwell_ns = lcore.dwell.map_or(if learns { cost.ns } else { spin_ns }, ns);
    let pause = lcore.pause.then(Pause::of_this_cpu);
    Budget { policy: lcore.idle, spin_ns, spin_from, dwell_ns, wake_cost_ns: cost.ns, objective, pause }
}

/// Returns the cost of waking an lcore: from an lcore that fills one of its rings, from any other
/// lcore, or from any other CPU, in this order.
fn wake_cost(plan: &Plan, lcore: &Lcore) -> WakeCost {
    let filler = lcore.rings_in.first().map(|ring| plan[plan[*ring].lanes[0].lcore].cpu);
    let other = || plan.lcores().iter().map(|other| other.cpu).find(|cpu| *cpu != lcore.cpu);
    let allowed = || core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id as u32);
    let from = filler.or_else(other).or_else(|| allowed().find(|cpu| *cpu != lcore.cpu)).unwrap_or(lcore.cpu);
    between(from, lcore.cpu)
}

/// Returns the cost between two CPUs.
fn between(from: u32, to: u32) -> WakeCost {
    static COSTS: Mutex<BTreeMap<(u32, u32), WakeCost>> = Mutex::new(BTreeMap::new());
    // A panic leaves only measured costs behind.
    let mut costs = lock(&COSTS);
    *costs.entry((from, to)).or_insert_with(|| {
        let cost = measure(from, to).unwrap_or_else(|error| {
            // A CPU that this process may not use is reported when its lcore starts.
            tracing::debug!(from, to, %error, "what a wake-up costs cannot be measured");
            WakeCost { ns: GUESS_NS, clean: false }
        });
        WakeCost { ns: cost.ns.clamp(*COST_NS.start(), *COST_NS.end()), ..cost }
    })
}

/// A batch of wake-ups, by its quartiles.
#[derive(Clone, Copy, Debug)]
struct Batch {
    lower_ns: u64,
    upper_ns: u64,
}

impl Batch {
    fn of(mut trips_ns: Vec<u64>) -> Option<Batch> {
        trips_ns.sort_unstable();
        let at = |quarters: usize| trips_ns.get(trips_ns.len() * quarters / 4).copied();
        Some(Batch { lower_ns: at(1)?, upper_ns: at(3)? })
    }

    /// Whether most of the batch agrees on a plausible cost. Where a busy CPU makes every wake-up
    /// wait for a tick of the scheduler, they agree as well, but on some milliseconds.
    fn is_clean(&self) -> bool {
        self.lower_ns <= *COST_NS.end() && self.upper_ns <= self.lower_ns.saturating_mul(2)
    }

    fn agrees_with(&self, other: &Batch) -> bool {
        let (less, more) = (self.lower_ns.min(other.lower_ns), self.lower_ns.max(other.lower_ns));
        more <= less + less / 2
    }
}

/// Returns the cost on which two clean batches agree, the last one and an earlier one.
fn agreed(batches: &[Batch]) -> Option<WakeCost> {
    let (last, before) = batches.split_last().filter(|(last, _)| last.is_clean())?;
    let other = before.iter().rev().find(|other| other.is_clean() && other.agrees_with(last))?;
    Some(WakeCost { ns: last.lower_ns.min(other.lower_ns), clean: true })
}

/// Returns the least cost where no two agree: no disturbance makes a wake-up shorter.
fn best(batches: &[Batch]) -> WakeCost {
    let ns = batches.iter().map(|batch| batch.lower_ns).min().unwrap_or(GUESS_NS);
    WakeCost { ns, clean: false }
}

fn measure(from: u32, to: u32) -> io::Result<WakeCost> {
    let (waker, sleeper) = doorbell()?;
    let (ready, over) = (Arc::new(EventFd::new()?), Arc::new(AtomicBool::new(false)));
    let (woken, heard) = mpsc::channel();
    let named = |name: &str| std::thread::Builder::new().name(name.into());
    let asleep = {
        let (ready, over) = (Arc::clone(&ready), Arc::clone(&over));
        named("vl-sleeper").spawn(move || pin(to).and_then(|()| be_woken(sleeper, &ready, &over, &woken)))?
    };
    let awake = named("vl-waker").spawn(move || {
        let cost = pin(from).and_then(|()| compare(&waker, &ready, &heard));
        // Relaxed: the flag carries no data, and if the bell comes first, the sleeper ends when its
        // time is up.
        over.store(true, Ordering::Relaxed);
        waker.ring();
        cost
    });
    let cost = awake.map(join);
    join(asleep)?;
    cost?
}

fn join<T>(thread: std::thread::JoinHandle<io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a measuring thread panicked")))
}

fn pin(cpu: u32) -> io::Result<()> {
    let id = CoreId { id: cpu as usize };
    // core_affinity's set holds 1,024 CPUs and panics beyond.
    let is_allowed = core_affinity::get_core_ids().unwrap_or_default().contains(&id);
    if is_allowed && core_affinity::set_for_current(id) {
        return Ok(());
    }
    Err(io::Error::other(format!("this process may not run on CPU {cpu}")))
}

/// Sleeps, and reports when it was woken.
fn be_woken(mut sleeper: Sleeper, ready: &EventFd, over: &AtomicBool, woken: &mpsc::Sender<Instant>) -> io::Result<()> {
    // Relaxed: see `measure`.
    while !over.load(Ordering::Relaxed) {
        let armed = sleeper.arm();
        ready.signal();
        sleeper.wait(armed, Some(ANSWER))?;
        if woken.send(Instant::now()).is_err() {
            break;
        }
    }
    Ok(())
}

/// Wakes the sleeper in batches, until two agree or it has taken long enough.
fn compare(waker: &Waker, ready: &EventFd, heard: &mpsc::Receiver<Instant>) -> io::Result<WakeCost> {
    let until = Instant::now() + PATIENCE;
    let mut batches = Vec::new();
    while Instant::now() < until {
        let mut trips_ns = Vec::with_capacity(TRIPS);
        // At least one wake-up per batch, and the whole batch only in time.
        while trips_ns.is_empty() || trips_ns.len() < TRIPS && Instant::now() < until {
            trips_ns.push(wake(waker, ready, heard)?.as_nanos() as u64);
        }
        batches.extend(Batch::of(trips_ns));
        if let Some(cost) = agreed(&batches) {
            return Ok(cost);
        }
    }
    Ok(best(&batches))
}

/// Makes one wake-up.
fn wake(waker: &Waker, ready: &EventFd, heard: &mpsc::Receiver<Instant>) -> io::Result<Duration> {
    let silent = |_| io::Error::new(io::ErrorKind::TimedOut, "the measuring threads do not hear each other");
    event_fd::wait([ready.as_fd()], Some(Instant::now() + ANSWER));
    ready.clear();
    let from = Instant::now();
    while from.elapsed() < ASLEEP {
        std::hint::spin_loop();
    }
    let rung = Instant::now();
    waker.ring();
    let woken = heard.recv_timeout(ANSWER).map_err(silent)?;
    Ok(woken.saturating_duration_since(rung))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(lower_ns: u64, upper_ns: u64) -> Batch {
        Batch { lower_ns, upper_ns }
    }

    fn clean(ns: u64) -> Option<WakeCost> {
        Some(WakeCost { ns, clean: true })
    }

    #[test]
    fn a_batch_is_clean_if_most_of_it_agrees_whatever_the_rest_is() {
        // Up to a quarter may be arbitrarily long.
        let mut trips = vec![20_000; 12];
        trips.extend([4_000_000; 4]);
        let disturbed = Batch::of(trips.clone()).unwrap();
        assert!(!disturbed.is_clean(), "{disturbed:?}");
        trips[15] = 20_000;
        let calm = Batch::of(trips).unwrap();
        assert!(calm.is_clean() && calm.lower_ns == 20_000, "{calm:?}");
        assert!(!batch(4_000_000, 4_000_000).is_clean(), "that is the scheduler's tick");
        assert!(Batch::of(vec![]).is_none());
    }

    #[test]
    fn two_clean_batches_that_agree_are_believed_and_no_others() {
        assert_eq!(agreed(&[]), None);
        assert_eq!(agreed(&[batch(20_000, 25_000)]), None, "one has nobody to agree with");
        assert_eq!(agreed(&[batch(20_000, 25_000), batch(22_000, 30_000)]), clean(20_000));
        assert_eq!(agreed(&[batch(2_700, 3_000), batch(22_000, 30_000)]), None, "one of them is wrong");
        assert_eq!(agreed(&[batch(22_000, 30_000), batch(2_700, 3_000), batch(21_000, 30_000)]), clean(21_000));
        assert_eq!(agreed(&[batch(20_000, 25_000), batch(20_000, 2_000_000)]), None, "the last was disturbed");
        assert_eq!(agreed(&[batch(20_000, 2_000_000), batch(20_000, 25_000)]), None, "the first was");
        assert_eq!(agreed(&[batch(3_800_000, 3_900_000), batch(3_800_000, 4_000_000)]), None, "both were");
    }

    #[test]
    fn where_all_were_disturbed_the_least_is_told_as_what_it_is() {
        let batches = [batch(4_000_000, 9_000_000), batch(24_000, 3_000_000), batch(90_000, 5_000_000)];
        assert_eq!((agreed(&batches), best(&batches)), (None, WakeCost { ns: 24_000, clean: false }));
        assert_eq!(best(&[]), WakeCost { ns: GUESS_NS, clean: false });
    }

    #[test]
    fn a_cpu_that_may_not_be_used_gives_a_guess_and_no_error() {
        assert_eq!(between(100_000, 100_000), WakeCost { ns: GUESS_NS, clean: false });
    }

    /// With every CPU kept busy by two others: measurements not reported as disturbed are alike,
    /// within a factor of two of most of them, and are neither a tick of the scheduler nor a
    /// missing wake-up. There may be more disturbed ones. One measurement in ten may be further
    /// away, since a program that began or ended meanwhile may have slowed both of its batches. Of
    /// three rounds one may find the machine busier than that.
    #[test]
    fn two_lcores_worth_of_cpus_a_wake_up_costs_the_same_whoever_has_them() {
        let cpus: Vec<u32> = core_affinity::get_core_ids().unwrap().iter().map(|core| core.id as u32).collect();
        let [from, to, ..] = cpus[..] else { return eprintln!("skipped: two CPUs are needed") };
        let faults: Vec<String> = (0..3).map_while(|_| round(from, to).err()).collect();
        assert!(faults.len() < 3, "{faults:#?}");
    }

    fn round(from: u32, to: u32) -> Result<(), String> {
        let over = AtomicBool::new(false);
        let (mut clean, mut disturbed) = (Vec::new(), Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..2 {
                // Relaxed: the flag carries no data.
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            while clean.len() < 20 && disturbed.len() < 100 {
                let cost = measure(from, to).unwrap();
                if cost.clean { &mut clean } else { &mut disturbed }.push(cost.ns);
            }
            over.store(true, Ordering::Relaxed);
        });
        clean.sort_unstable();
        let median = clean.get(clean.len() / 2).copied().unwrap_or(0);
        let far = clean.iter().filter(|ns| **ns > 2 * median || 2 * **ns < median).count();
        let is_alike = clean.len() == 20 && far <= clean.len() / 10;
        is_alike.then_some(()).ok_or_else(|| format!("{clean:?}, and disturbed {disturbed:?}"))
    }
}
