//! Injectors: threads of the embedder hand messages to a stage, and wake its lcore.
//!
//! An injector is a ring of the plan (`[injector.NAME]`) whose producer is not an lcore. Its
//! handles share the producer's end under a lock, so that any number of threads may push. They wait
//! for each other while one message is copied; the lcore never waits for them and never takes the
//! lock. (With a lock-free queue for many producers the lcore would wait for a producer that was
//! preempted half-way through a push, as in crossbeam's ArrayQueue.) The two sides share the ring
//! and the doorbell, like two lcores ([`verbline_ring`]), and nothing else.
//!
//! Guarantees: a pushed message reaches the stage once, in order. A message without room is refused
//! and counted, and no part of it is kept. When the run begins to stop every later push is refused
//! ([`Refused::Stopped`]), and every earlier one is delivered within the drain.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use verbline_mem::{Packet, PoolCache};
use verbline_ring::{Producer, Waker};

use crate::control::run_control::{Control, Phase};
use crate::errors::error::EngineError;
use crate::stats::counter::Shared;
use crate::stats::counters::InjectorStats;

/// Hands messages to the stage of a plan's `[injector.NAME]`, from any thread; clones are handles
/// of the same injector. A handle may outlive the run; its pushes are refused then.
///
/// [`Runtime::injector`](crate::Runtime::injector) returns one.
#[derive(Clone)]
pub struct Injector {
    shared: Arc<InjectorShared>,
}

/// The reason why an injector did not take a message. The caller still has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The ring is full.
    #[error("the injector's ring is full: its stage takes less than is pushed; push again later, or raise `depth`")]
    Full,
    /// The pool has no packet left.
    #[error("the injector's pool has no packet left: a stage keeps more than its kind says")]
    NoPacket,
    /// The message is longer than a packet of the pool.
    #[error("a message of {len_bytes} bytes does not fit a packet of {room_bytes}; raise `data_bytes` of the pool")]
    TooLong {
        /// The length of the message.
        len_bytes: usize,
        /// The room of a fresh packet of the pool.
        room_bytes: usize,
    },
    /// The run is stopping (also after a failure), has ended, or was dropped before it started.
    #[error("the run of the injector is over")]
    Stopped,
}

struct InjectorShared {
    name: String,
    room_bytes: usize,
    stats: Shared<InjectorStats>,
    waker: Waker,
    control: Arc<Control>,
    /// `None` once the injector is closed.
    end: Mutex<Option<End>>,
}

/// The producer's side.
struct End {
    ring: Producer<Packet>,
    cache: PoolCache,
}

impl Injector {
    pub(crate) fn new(
        name: &str,
        ring: Producer<Packet>,
        cache: PoolCache,
        room_bytes: usize,
        waker: Waker,
        stats: Shared<InjectorStats>,
        control: Arc<Control>,
    ) -> Injector {
        let end = Mutex::new(Some(End { ring, cache }));
        Injector { shared: Arc::new(InjectorShared { name: name.to_owned(), room_bytes, stats, waker, control, end }) }
    }

    /// The injector's name in the plan.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Copies a message into a packet, hands it to the stage, and wakes the lcore if it sleeps.
    ///
    /// # Errors
    /// The reason of the refusal, which is counted; nothing has been handed on.
    pub fn try_push(&self, message: &[u8]) -> Result<(), Refused> {
        self.try_push_all(&[message]).1.map_or(Ok(()), Err)
    }

    /// Hands on a batch, in order, and wakes the lcore once. Returns the number of messages taken,
    /// and why the next one was refused; later messages are not looked at.
    pub fn try_push_all(&self, messages: &[&[u8]]) -> (usize, Option<Refused>) {
        // No code of the caller's runs under the lock, and every counter has one writer.
        let mut end = self.end();
        let (mut taken, mut why) = (0, None);
        for message in messages {
            match self.shared.push(end.as_mut(), message) {
                Ok(()) => taken += 1,
                Err(refused) => {
                    why = Some(refused);
                    self.shared.stats.refused(refused);
                    break;
                }
            }
        }
        if taken > 0 {
            self.shared.stats.pushed.add(taken as u64);
            self.shared.stats.bells.add(self.shared.waker.ring().into());
        }
        (taken, why)
    }

    /// Refuses every later push, and releases the producer's end; the packets in the ring are the
    /// lcore's.
    pub(crate) fn close(&self) {
        self.end().take();
    }

    fn end(&self) -> MutexGuard<'_, Option<End>> {
        // Nothing under the lock panics.
        self.shared.end.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl InjectorShared {
    fn push(&self, end: Option<&mut End>, message: &[u8]) -> Result<(), Refused> {
        // A run that fails begins to stop before its owner hears of it and closes this end.
        let is_running = Phase::of(self.control.word()) == Phase::Running;
        let End { ring, cache } = end.filter(|_| is_running).ok_or(Refused::Stopped)?;
        if message.len() > self.room_bytes {
            return Err(Refused::TooLong { len_bytes: message.len(), room_bytes: self.room_bytes });
        }
        if ring.room_for(1) == 0 {
            return Err(Refused::Full);
        }
        let mut packet = cache.get_of_len(message.len()).ok_or(Refused::NoPacket)?;
        packet.data_mut().copy_from_slice(message);
        // There is room, and only the holder of the lock fills it.
        ring.push(packet).map_err(|_| Refused::Full)
    }
}

impl InjectorStats {
    fn refused(&self, why: Refused) {
        let count = match why {
            Refused::Full => &self.refused_full,
            Refused::NoPacket => &self.refused_no_packet,
            Refused::TooLong { .. } => &self.refused_too_long,
            Refused::Stopped => &self.refused_stopped,
        };
        count.add(1);
    }
}

impl fmt::Debug for Injector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Injector").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

/// All injectors of a run. Dropped, it closes them: a handle that lives on keeps no packet.
#[derive(Debug, Default)]
pub(crate) struct Injectors(pub(crate) Vec<Injector>);

impl Injectors {
    pub(crate) fn close(&self) {
        self.0.iter().for_each(Injector::close);
    }

    pub(crate) fn get(&self, name: &str) -> Result<Injector, EngineError> {
        let found = self.0.iter().find(|injector| injector.name() == name).cloned();
        found.ok_or_else(|| EngineError::NoInjector {
            asked: name.to_owned(),
            known: self.0.iter().map(|injector| injector.name().to_owned()).collect(),
        })
    }
}

impl Drop for Injectors {
    fn drop(&mut self) {
        self.close();
    }
}
