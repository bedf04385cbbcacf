//! A thread that does the pollers' work while none of them polls: it serves, or it stands by.
//!
//! - It serves from the start, and once nobody has polled for a while: an owner may spin on memory
//!   that a peer writes, or compute.
//! - It serves at once when its bell rings: an owner has armed its completion queue and may sleep
//!   after one more poll.
//! - It stands by when owners have polled more than a number of times since it began to serve.
//!
//! Guarantees: an owner that rings, polls at most that number of times and sleeps, is served until
//! it polls again, though nothing else ever wakes the thread. The work's own lock decides which of
//! the two works, so both at once are slower and never wrong.

/// The work, and the ways to wait for it.
pub trait Work {
    /// Takes one turn. Returns the owners' number of polls so far, and the time of the next turn,
    /// if one is due.
    fn turn(&mut self) -> (u64, Option<u64>);
    /// The owners' number of polls so far.
    fn polls(&mut self) -> u64;
    /// Waits until there is work, the bell rings, or the next turn is due.
    fn wait_for_work(&mut self, due_ns: Option<u64>);
    /// Waits until the bell rings, or for the time after which an owner that has not polled counts
    /// as busy or asleep.
    fn wait_for_bell(&mut self);
    /// Whether the bell has rung since the last call.
    fn was_rung(&mut self) -> bool;
}

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct Standby {
    /// The number of polls since which it serves; `None` while it stands by.
    serving: Option<u64>,
    /// The number of polls at its last look, while standing by.
    polls_before: u64,
    /// Polls since it began to serve that show an owner awake.
    polls_max: u64,
}

impl Standby {
    /// Starts by serving.
    pub fn new(polls_max: u64) -> Standby {
        Standby { serving: Some(0), polls_before: 0, polls_max }
    }

    /// Works or looks once, and waits at most once.
    pub fn step(&mut self, work: &mut impl Work) {
        match self.serving {
            Some(since) => {
                let (polls, due_ns) = work.turn();
                if polls.saturating_sub(since) > self.polls_max {
                    // The next wait hears a bell that rings from here on.
                    (self.serving, self.polls_before) = (None, polls);
                    return;
                }
                work.wait_for_work(due_ns);
                // Polls are counted after the bell is read. Earlier ones, in a row while this
                // thread slept, don't show that the ringing owner is awake.
                if work.was_rung() {
                    self.serving = Some(work.polls());
                }
            }
            None => {
                work.wait_for_bell();
                let is_rung = work.was_rung();
                let polls = work.polls();
                if is_rung || polls == self.polls_before {
                    self.serving = Some(polls);
                }
                self.polls_before = polls;
            }
        }
    }
}
