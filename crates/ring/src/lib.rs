//! Hand-off between lcores: SPSC rings that move batches, and the protocol by which an idle lcore
//! sleeps.
//!
//! - [`spsc`] makes a ring: [`Producer::push_iter`] publishes a batch, [`Consumer::pop_into`] takes
//!   one. A full ring refuses, and what it refuses stays with the caller.
//! - [`doorbell`] makes the pair by which an lcore sleeps and is woken: a [`Sleeper`] and its
//!   [`Waker`]s. No wake-up is lost. While the lcore is awake, a ring costs two loads of lines that
//!   nobody writes.
//! - [`Pulse`] and [`Quiet`] tell when nothing is in flight between lcores any more, so that they
//!   can be stopped.
//! - [`Notices`] reach a reader that loads one word in every turn; a reader that sleeps is woken by
//!   its doorbell.
//! - [`displacement`] tells the consumer of a full ring which of its oldest items are in the way.
//! - [`Pause`] is how a thread that spins waits for a moment.
//! - [`signals::block`] keeps signals from a thread that polls.
//! - [`fence`] has the asymmetric fences that make this cheap, for other protocols of the same
//!   shape.
//!
//! After construction nothing allocates and nothing locks, except for notices, which are rare. Only
//! an lcore that goes to sleep, and the lcore that wakes it, enter the kernel.
//!
//! # How it is proved
//! The doorbell, the fences, the notices and the look-out for quiet run as they are under
//! [loom](https://docs.rs/loom), which tries every interleaving and every value that a load may
//! see:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p verbline-ring --release --test loom
//! ```
//!
//! Every model is exhaustive but three: two producers, or two who post and advance, against a
//! sleeper that really blocks and sleeps again, and packets between lcores that are looked at for
//! quiet, which stop at three preemptions. Mutants that skip the poll after arming, or one of the
//! fences, or empty a box too early, must lose a wake-up or a notice or overlook a packet.
//!
//! Two things are stood in for. The eventfd is a mutex and a condition variable, and loom has no
//! membarrier(2), so both fences are `SeqCst`; that `membarrier` and a compiler fence make the same
//! pair is the kernel's promise (membarrier(2), and Documentation/scheduler/membarrier.rst). And
//! rtrb isn't built for loom: the models publish as it does, by a Release store of an index that
//! the consumer loads with Acquire. The ring itself is held against a `VecDeque` by generated
//! operations, and run across two threads.

#![deny(unsafe_code)]

mod displace;
mod doorbell;
pub mod fence;
mod notices;
mod pause;
mod prefetch;
mod quiet;
pub mod signals;
mod spsc;
mod sync;

pub use displace::{Displaced, Displacer, displacement};
#[cfg(loom)]
#[doc(hidden)]
pub use doorbell::doorbell_lacking_fence;
pub use doorbell::{ArmedDoorbell, Sleeper, Wake, Waker, doorbell};
pub use notices::{Notices, Word};
pub use pause::Pause;
pub use quiet::{Beats, Pulse, Quiet};
pub use spsc::{Consumer, PopIter, Producer, spsc};
