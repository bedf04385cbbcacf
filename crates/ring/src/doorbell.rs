//! The doorbell: how an idle lcore sleeps, and how others wake it without a cost while it runs.
//!
//! One doorbell belongs to one sleeping lcore: a [`Sleeper`], which it keeps, and a [`Waker`],
//! cloned to everybody who hands it work. The sleeper arms, polls every source once more, and only
//! then blocks. A waker publishes, then rings.
//!
//! ```text
//!     waker                               sleeper
//!     publish the items                   state = ASLEEP              arm
//!     light fence                         heavy fence
//!     if state == ASLEEP:                 poll every source again
//!         ASLEEP → AWAKE, once            found something: disarm
//!         write the eventfd               nothing: block on it, then woken
//! ```
//!
//! What it guarantees:
//! - No wake-up is lost: either the waker sees ASLEEP, or the poll after arming sees what it
//!   published.
//! - One eventfd write a sleep at most, however many wakers ring; none while the lcore is awake, or
//!   once it is.
//! - After [`Sleeper::woken`] the eventfd isn't readable, so a doorbell cannot make its lcore spin.
//! - While the lcore is awake the state's cache line is only read, so every waker's core keeps its
//!   own copy of it.
//!
//! What it doesn't: a sleeper may wake for nothing. A ring that crosses a [`Sleeper::disarm`]
//! leaves a write behind, and if that is still on its way at the next arm it ends the next sleep
//! early, and is reported by [`Wake::Other`].

use crate::sync::{Arc, AtomicU32, Event, Fences, Ordering};
use crossbeam_utils::CachePadded;
use std::io;
#[cfg(not(loom))]
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The lcore polls, or somebody has taken on to wake it.
const AWAKE: u32 = 0;
/// The lcore sleeps or is about to: a waker that publishes must wake it.
const ASLEEP: u32 = 1;

/// Makes a doorbell: the end of the sleeper, and the end of its wakers.
///
/// # Errors
/// Those of eventfd(2): mostly `EMFILE` and `ENFILE`, out of file descriptors.
pub fn doorbell() -> io::Result<(Waker, Sleeper)> {
    // Chooses the fences now, so that the first rings have the cheap one.
    crate::fence::mechanism();
    doorbell_with(Fences::both())
}

/// A doorbell that lacks a fence, to show in a model that it would lose a wake-up.
#[cfg(loom)]
#[doc(hidden)]
pub fn doorbell_lacking_fence(without_light: bool, without_heavy: bool) -> io::Result<(Waker, Sleeper)> {
    doorbell_with(Fences { without_light, without_heavy })
}

fn doorbell_with(fences: Fences) -> io::Result<(Waker, Sleeper)> {
    let state = CachePadded::new(AtomicU32::new(AWAKE));
    let bell = Arc::new(Doorbell { state, event: Event::new()?, fences });
    let sleeper = Sleeper { bell: bell.clone(), id: next_id(), sleeps: 0, armed: false, owed: 0 };
    Ok((Waker { bell }, sleeper))
}

/// What both ends share.
#[derive(Debug)]
struct Doorbell {
    /// AWAKE or ASLEEP. Alone on its cache line: the count of the `Arc` and the event's descriptor
    /// lie elsewhere.
    state: CachePadded<AtomicU32>,
    event: Event,
    fences: Fences,
}

/// Wakes one lcore. Each thread that hands work to that lcore has a clone.
#[derive(Clone, Debug)]
pub struct Waker {
    bell: Arc<Doorbell>,
}

impl Waker {
    /// Wakes the lcore if it sleeps; call it after every publishing (once a batch). Returns whether
    /// this call woke it.
    ///
    /// While the lcore is awake this is two loads from lines that nobody writes.
    #[inline]
    pub fn ring(&self) -> bool {
        // Between the publishing and the load. Pairs with the heavy fence in `Sleeper::arm`.
        self.bell.fences.light();
        // Relaxed: the fence orders it; a stale ASLEEP is caught by the exchange in `wake`.
        self.bell.state.load(Ordering::Relaxed) == ASLEEP && self.bell.wake()
    }
}

impl Doorbell {
    /// Of the wakers that saw ASLEEP, one writes the eventfd.
    #[cold]
    fn wake(&self) -> bool {
        // Release: pairs with the Acquire swap in `Sleeper::stand_up`, which so sees what this
        // waker published. Acquire: pairs with the Release store in `arm`, so that the write comes
        // after the leftovers were drained.
        let claimed = self.state.compare_exchange(ASLEEP, AWAKE, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if claimed {
            self.event.signal();
        }
        claimed
    }
}

/// The lcore's own end of its doorbell.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use verbline_ring::{doorbell, spsc};
/// let (mut producer, mut consumer) = spsc::<u32>(64);
/// let (waker, mut sleeper) = doorbell()?;
/// let other = std::thread::spawn(move || {
///     producer.push_iter(3, [1, 2, 3]);
///     waker.ring();
/// });
/// let mut sum = 0;
/// while sum < 6 {
///     if consumer.pop_into(32, |item| sum += item) > 0 {
///         continue;
///     }
///     let armed = sleeper.arm();
///     if consumer.is_empty() {
///         sleeper.wait(armed, None)?;
///     } else {
///         sleeper.disarm(armed);
///     }
/// }
/// # other.join().unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Sleeper {
    bell: Arc<Doorbell>,
    /// Which doorbell a token belongs to: unique in this process.
    id: u64,
    /// How often it was armed; the newest token carries this number.
    sleeps: u64,
    /// Whether a token is out.
    armed: bool,
    /// Writes to the eventfd that a waker has taken on and this end hasn't drained yet.
    owed: u64,
}

/// Proof that a doorbell is armed. Only [`Sleeper::arm`] makes one; [`Sleeper::disarm`],
/// [`Sleeper::woken`] or [`Sleeper::wait`] of the same sleeper takes it.
///
/// It can be neither made nor copied:
/// ```compile_fail
/// let armed = verbline_ring::ArmedDoorbell { bell: 1, sleep: 1 };
/// ```
/// ```compile_fail
/// let (_waker, mut sleeper) = verbline_ring::doorbell().unwrap();
/// let armed = sleeper.arm();
/// sleeper.disarm(armed);
/// sleeper.woken(armed);
/// ```
/// and it isn't forgotten by accident:
/// ```compile_fail
/// #![deny(unused_must_use)]
/// let (_waker, mut sleeper) = verbline_ring::doorbell().unwrap();
/// sleeper.arm();
/// ```
#[derive(Debug)]
#[must_use = "poll every source again, then `disarm` it, or block and hand it to `woken`"]
pub struct ArmedDoorbell {
    bell: u64,
    sleep: u64,
}

/// What a doorbell did during a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A waker rang.
    Rung,
    /// No waker rang: another source, a time-out, a signal handler, or a write left over from an
    /// earlier sleep.
    Other,
}

impl Sleeper {
    /// Announces that this lcore is about to sleep. Costs a membarrier(2), some microseconds.
    ///
    /// Then poll **every** source of work once more: what was published before this call rings no
    /// bell. If that finds something, [`disarm`](Self::disarm); if not, block on
    /// [`as_fd`](AsFd::as_fd) together with the other sources and go on with
    /// [`woken`](Self::woken), or use [`wait`](Self::wait).
    ///
    /// If the last token was dropped, its sleep is ended here.
    pub fn arm(&mut self) -> ArmedDoorbell {
        if self.armed {
            self.stand_up();
        }
        if self.owed > 0 {
            self.drain();
        }
        self.sleeps += 1;
        self.armed = true;
        // Release: pairs with the Acquire of the exchange in `Doorbell::wake`; what that writes
        // comes after the drain.
        self.bell.state.store(ASLEEP, Ordering::Release);
        // Between the store and the caller's next poll. Pairs with the light fence in
        // `Waker::ring`.
        self.bell.fences.heavy();
        ArmedDoorbell { bell: self.id, sleep: self.sleeps }
    }

    /// Stays awake: the poll after arming found something. Enters the kernel for nothing.
    ///
    /// # Panics
    /// If `armed` isn't the newest token of this sleeper.
    pub fn disarm(&mut self, armed: ArmedDoorbell) -> Wake {
        self.redeem(armed);
        self.stand_up()
    }

    /// Is awake again, whatever woke it: drains the eventfd and says whether a waker rang.
    ///
    /// # Panics
    /// If `armed` isn't the newest token of this sleeper.
    pub fn woken(&mut self, armed: ArmedDoorbell) -> Wake {
        self.redeem(armed);
        let wake = self.stand_up();
        self.drain();
        wake
    }

    /// Blocks on this doorbell alone, up to `timeout` (`None`: no limit), and is
    /// [`woken`](Self::woken).
    ///
    /// # Errors
    /// Those of ppoll(2) except `EINTR`, which ends the wait with [`Wake::Other`]. The sleeper is
    /// awake then, too.
    ///
    /// # Panics
    /// If `armed` isn't the newest token of this sleeper.
    pub fn wait(&mut self, armed: ArmedDoorbell, timeout: Option<Duration>) -> io::Result<Wake> {
        self.check(&armed);
        let waited = self.bell.event.wait(timeout);
        let wake = self.woken(armed);
        waited.map(|()| wake)
    }

    fn check(&self, armed: &ArmedDoorbell) {
        assert!(
            self.armed && armed.bell == self.id && armed.sleep == self.sleeps,
            "token of doorbell {} sleep {} given to doorbell {} sleep {}: a token goes back to the sleeper that armed \
             it, before that arms again",
            armed.bell,
            armed.sleep,
            self.id,
            self.sleeps,
        );
    }

    fn redeem(&self, armed: ArmedDoorbell) {
        self.check(&armed);
    }

    /// Ends the sleep, and notes the write that a waker has taken on during it.
    fn stand_up(&mut self) -> Wake {
        self.armed = false;
        // Acquire: pairs with the Release of the exchange in `Doorbell::wake`. Relaxed store: it
        // publishes nothing.
        match self.bell.state.swap(AWAKE, Ordering::Acquire) {
            ASLEEP => Wake::Other,
            _ => {
                self.owed += 1;
                Wake::Rung
            }
        }
    }

    /// Saturating, because every holder of a descriptor can write it.
    fn drain(&mut self) {
        self.owed = self.owed.saturating_sub(self.bell.event.take());
    }
}

/// The eventfd: readable when a waker rang. Only poll it; [`Sleeper::woken`] reads it.
#[cfg(not(loom))]
impl AsFd for Sleeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.event.as_fd()
    }
}

impl Drop for Sleeper {
    /// Wakers that outlive it see it awake, and write nothing.
    fn drop(&mut self) {
        if self.armed {
            self.stand_up();
        }
    }
}

fn next_id() -> u64 {
    // Of the standard library even under loom: it is no part of the protocol.
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed, no partner: only uniqueness counts.
    NEXT.fetch_add(1, Ordering::Relaxed)
}
