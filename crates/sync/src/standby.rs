//! A thread that does the work of those who poll while none of them does: it serves, or it stands
//! by.
//!
//! - It serves from the start, and once nobody has polled for a while: an owner may spin on memory
//!   that a peer writes, or compute.
//! - It serves at once when its bell rings: an owner has armed its completion queue and may sleep
//!   after one more poll.
//! - It stands by when owners have polled more than a number of times since it began to serve.
//!
//! Guarantees: an owner that rings, polls that number of times at most and sleeps, is served until
//! it polls again, though nothing else ever wakes the thread. The work's own lock decides which of
//! the two works, so that both at once is slower and never wrong.

/// The work, and the ways to wait for it.
pub trait Work {
    /// Takes one turn. Gives how often owners have polled so far, and when the next turn is due, if
    /// it is.
    fn turn(&mut self) -> (u64, Option<u64>);
    /// How often owners have polled so far.
    fn polls(&mut self) -> u64;
    /// Waits until there is something to do, the bell rings, or the next turn is due.
    fn wait_for_work(&mut self, due_ns: Option<u64>);
    /// Waits until the bell rings, or for the while after which an owner that has not polled is
    /// taken to be busy or asleep.
    fn wait_for_bell(&mut self);
    /// Whether the bell has rung since it was asked last.
    fn was_rung(&mut self) -> bool;
}

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct Standby {
    /// Since how many polls it serves; `None` while it stands by.
    serving: Option<u64>,
    /// How many there had been when it looked last, standing by.
    polls_before: u64,
    /// Polls since it began to serve, by which an owner is known to be awake.
    polls_max: u64,
}

impl Standby {
    /// Serves at first.
    pub fn new(polls_max: u64) -> Standby {
        Standby { serving: Some(0), polls_before: 0, polls_max }
    }

    /// Works or looks once, and waits once at most.
    pub fn step(&mut self, work: &mut impl Work) {
        match self.serving {
            Some(since) => {
                let (polls, due_ns) = work.turn();
                if polls.saturating_sub(since) > self.polls_max {
                    // A bell that rings from here on is heard by the next wait.
                    (self.serving, self.polls_before) = (None, polls);
                    return;
                }
                work.wait_for_work(due_ns);
                // Polls are counted after the bell is asked. Those of before it, in a row while
                // this thread slept, are none by which the one who rang is awake.
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
