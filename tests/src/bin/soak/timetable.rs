//! The times of the disturbances: scaled to the soak's time, and the same in each soak of that
//! length.

use std::time::Duration;

/// A kind of disturbance.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Disturbance {
    /// The process is stopped, and later goes on.
    Pause,
    /// Another thread wants the CPU of one of its lcores.
    Neighbour,
    /// Its terminal is stopped, so output is not taken.
    CtrlS,
    /// Nobody reads its terminal, which is full.
    Unread,
    /// Its limits allow no new descriptor, no write to a file and no locked memory.
    Limits,
    /// It is asked to read its plan again and again.
    Reload,
}

impl Disturbance {
    const ALL: [Disturbance; 6] = [
        Disturbance::Pause,
        Disturbance::Neighbour,
        Disturbance::CtrlS,
        Disturbance::Limits,
        Disturbance::Unread,
        Disturbance::Reload,
    ];

    /// The name in `--help` and `--json`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Disturbance::Pause => "pause",
            Disturbance::Neighbour => "neighbour",
            Disturbance::CtrlS => "ctrl-s",
            Disturbance::Unread => "unread",
            Disturbance::Limits => "limits",
            Disturbance::Reload => "reload",
        }
    }
}

/// One disturbance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Time since the run counted its first unit.
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    pub(crate) what: Disturbance,
}

/// A timetable, and the two undisturbed stretches that are compared.
#[derive(Clone, Debug)]
pub(crate) struct Timetable {
    pub(crate) entries: Vec<Entry>,
    /// The start and the end of each stretch.
    pub(crate) first: (Duration, Duration),
    pub(crate) last: (Duration, Duration),
}

/// The longest time from the start of one disturbance to the next.
const SLOT_MAX: Duration = Duration::from_secs(15);
/// The part of its slot that each disturbance takes, in turn: the run goes on for a while between
/// them.
const PARTS: [f64; 4] = [0.4, 0.1, 0.25, 0.05];
/// The longest disturbance: longer than the keep-alive of NVMe hosts here, and than any time-out.
const LASTS_MAX: Duration = Duration::from_secs(6);

impl Timetable {
    /// The timetable for a soak of `time`.
    pub(crate) fn of(time: Duration) -> Timetable {
        let quarter = time / 4;
        // Each disturbance at least once.
        let slots = (2 * quarter).as_secs_f64() / SLOT_MAX.as_secs_f64();
        let slots = (slots.ceil() as usize).max(Disturbance::ALL.len());
        let slot = (2 * quarter).div_f64(slots as f64);
        let entries = (0..slots).map(|at| {
            // Shifts the parts after each round of the kinds, since six kinds and four parts have a
            // common divisor.
            let part = PARTS[(at + at / Disturbance::ALL.len()) % PARTS.len()];
            Entry {
                at: quarter + slot.mul_f64(at as f64),
                lasts: slot.mul_f64(part).min(LASTS_MAX),
                what: Disturbance::ALL[at % Disturbance::ALL.len()],
            }
        });
        // Neither stretch contains the run's start or its recovery from the last disturbance.
        let settling = time / 16;
        Timetable {
            entries: entries.collect(),
            first: (settling, quarter),
            last: (3 * quarter + settling, 4 * quarter),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_disturbance_comes_and_none_when_stretches_are_compared() {
        for seconds in [8, 10, 60, 610, 3600] {
            let time = Duration::from_secs(seconds);
            let Timetable { entries, first, last } = Timetable::of(time);
            let mut kinds: BTreeMap<Disturbance, Vec<Duration>> = BTreeMap::new();
            for (entry, next) in entries.iter().zip(entries.iter().skip(1).map(|next| next.at).chain([last.0])) {
                assert!(entry.at >= first.1 && entry.at + entry.lasts < next, "{seconds} s: {entry:?}");
                assert!(entry.lasts >= Duration::from_millis(30) && entry.lasts <= LASTS_MAX, "{seconds} s: {entry:?}");
                kinds.entry(entry.what).or_default().push(entry.lasts);
            }
            assert_eq!(kinds.len(), Disturbance::ALL.len(), "{seconds} s");
            let of_an_hour = |lasts: &Vec<Duration>| lasts.len() >= 10 && lasts.iter().min() < lasts.iter().max();
            assert!(seconds < 3600 || kinds.values().all(of_an_hour), "{kinds:?}");
            assert!(first.0 < first.1 && last.0 < last.1 && last.1 <= time, "{seconds} s: {first:?} {last:?}");
        }
    }
}
