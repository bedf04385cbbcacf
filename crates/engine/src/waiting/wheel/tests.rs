//! The wheel against a sorted map, and its edges.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const TIMERS: u32 = 48;

/// The armed timers by tick, each tick's in the order in which they were armed.
#[derive(Default)]
struct Oracle {
    time_ns: Tick,
    serial: u64,
    armed: BTreeMap<(Tick, u64), DueTimer>,
}

impl Oracle {
    fn arm(&mut self, timer: DueTimer) {
        self.serial += 1;
        self.armed.insert((timer.at_ns.max(self.time_ns), self.serial), timer);
    }

    fn cancel(&mut self, id: TimerId) -> Option<DueTimer> {
        let key = *self.armed.iter().find(|(_, timer)| timer.id == id)?.0;
        self.armed.remove(&key)
    }

    fn expire(&mut self, now_ns: Tick, most: usize) -> Vec<DueTimer> {
        let mut due = Vec::new();
        while due.len() < most {
            let Some(entry) = self.armed.first_entry().filter(|entry| entry.key().0 <= now_ns) else { break };
            self.time_ns = entry.key().0;
            due.push(entry.remove());
        }
        if due.len() < most {
            self.time_ns = self.time_ns.max(now_ns);
        }
        due
    }
}

#[derive(Clone, Debug)]
enum Step {
    Arm {
        in_ns: i64,
    },
    Rearm {
        which: usize,
        in_ns: i64,
    },
    Cancel {
        which: usize,
    },
    Pass {
        ns: u64,
    },
    /// Lets time pass to just before, at, or just after the first tick.
    PassTo {
        past: i64,
    },
}

fn span() -> impl Strategy<Value = i64> {
    prop_oneof![-100_i64..100, 0_i64..5000, (0_u32..62).prop_map(|bit| 1 << bit), 0_i64..i64::MAX / 4]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => span().prop_map(|in_ns| Step::Arm { in_ns }),
        2 => (any::<usize>(), span()).prop_map(|(which, in_ns)| Step::Rearm { which, in_ns }),
        2 => any::<usize>().prop_map(|which| Step::Cancel { which }),
        2 => span().prop_map(|ns| Step::Pass { ns: ns.unsigned_abs() }),
        3 => (-1_i64..=1).prop_map(|past| Step::PassTo { past }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn it_does_what_a_sorted_map_does(origin_ns in any::<u64>(), steps in prop::collection::vec(step(), 1..120)) {
        let (mut wheel, mut oracle) = (Wheel::new(TIMERS), Oracle::default());
        let mut now_ns = origin_ns >> 1;
        let (mut ids, mut tag) = (Vec::new(), 0);
        let mut due = Vec::with_capacity(7);
        for step in steps {
            let at = |in_ns: i64| now_ns.saturating_add_signed(in_ns);
            let pick = |which: usize, ids: &[TimerId]| ids.get(which % ids.len().max(1)).copied();
            match step {
                Step::Arm { in_ns } => {
                    tag += 1;
                    let id = wheel.arm(at(in_ns), tag);
                    prop_assert_eq!(id.is_some(), oracle.armed.len() < TIMERS as usize);
                    let Some(id) = id else { continue };
                    prop_assert!(!ids.contains(&id), "a handle of its own");
                    ids.push(id);
                    oracle.arm(DueTimer { id, tag, at_ns: at(in_ns) });
                }
                Step::Rearm { which, in_ns } => {
                    let Some(id) = pick(which, &ids) else { continue };
                    let known = oracle.cancel(id);
                    prop_assert_eq!(wheel.rearm(id, at(in_ns)), known.is_some());
                    known.into_iter().for_each(|timer| oracle.arm(DueTimer { at_ns: at(in_ns), ..timer }));
                }
                Step::Cancel { which } => {
                    let Some(id) = pick(which, &ids) else { continue };
                    prop_assert_eq!(wheel.cancel(id), oracle.cancel(id).is_some());
                }
                Step::Pass { .. } | Step::PassTo { .. } => {
                    now_ns = match (step, oracle.armed.first_key_value()) {
                        (Step::Pass { ns }, _) => now_ns.saturating_add(ns),
                        (Step::PassTo { past }, Some(((at_ns, _), _))) => {
                            at_ns.saturating_add_signed(past).max(now_ns)
                        }
                        _ => now_ns,
                    };
                    loop {
                        due.clear();
                        wheel.expire(now_ns, &mut due);
                        prop_assert_eq!(&due, &oracle.expire(now_ns, due.capacity()));
                        if due.len() < due.capacity() {
                            break;
                        }
                    }
                }
            }
            prop_assert_eq!(wheel.armed() as usize, oracle.armed.len());
            let first = oracle.armed.values().map(|timer| timer.at_ns).min();
            prop_assert_eq!(wheel.next_ns().is_some(), first.is_some());
            prop_assert!(wheel.next_ns() <= first, "{:?} is too late for {first:?}", wheel.next_ns());
        }
    }
}

#[test]
fn a_wake_for_a_timer_that_was_canceled_is_the_last_one() {
    let mut wheel = Wheel::new(2);
    let first = wheel.arm(100_000, 1).unwrap();
    wheel.arm(100_500, 2).unwrap();
    assert!(wheel.cancel(first));
    let mut due = Vec::with_capacity(4);
    wheel.expire(wheel.next_ns().unwrap(), &mut due);
    assert_eq!((due.len(), wheel.next_ns()), (0, Some(100_500)));
}

#[test]
fn what_is_past_as_it_is_armed_comes_in_the_order_of_arming() {
    let mut wheel = Wheel::new(4);
    let mut due = Vec::with_capacity(4);
    wheel.expire(1_000, &mut due);
    let ticks = [1_000, 500, 400, 999];
    ticks.iter().zip(0..).for_each(|(at_ns, tag)| assert!(wheel.arm(*at_ns, tag).is_some()));
    wheel.expire(1_000, &mut due);
    assert_eq!(due.iter().map(|timer| timer.at_ns).collect::<Vec<_>>(), ticks);
}

#[test]
fn a_closed_one_and_one_of_no_timers_arm_none() {
    assert_eq!(Wheel::new(0).arm(1, 1), None);
    let mut wheel = Wheel::new(2);
    assert!(wheel.arm(1, 1).is_some());
    wheel.close();
    assert_eq!((wheel.arm(1, 2), wheel.armed()), (None, 1));
}

#[test]
fn a_timer_whose_handles_are_used_up_is_not_used_again() {
    let mut wheel = Wheel::new(1);
    wheel.timers[0].generation = GENERATION_MAX - 1;
    for _ in 0..2 {
        let id = wheel.arm(5, 0).unwrap();
        assert!(wheel.cancel(id) && !wheel.cancel(id));
    }
    assert_eq!(wheel.arm(5, 0), None, "the next handle would be the first one");
}
