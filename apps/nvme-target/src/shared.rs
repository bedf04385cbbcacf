//! State shared by the lcores of a target: its controllers, and values that its stages leave for
//! one another. It is behind locks, which no read or write takes.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rustix::rand::{GetRandomFlags, getrandom};
use verbline::engine::Region;
use verbline::prelude::*;
use verbline_nvme::identify::ControllerType;
use verbline_nvme::{Command, Nqn, opcode};
use verbline_store::Store;

use crate::admission::Admissions;
use crate::controller::Controller;

/// The shared state.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The generation of the discovery log, constant during a run.
    pub(crate) generation: u64,
    table: Mutex<Table>,
    pub(crate) admissions: Admissions,
    /// The memory of namespaces, by the region's name, left here by the stage that owns the region;
    /// and whether its blocks are formatted.
    memory: Mutex<BTreeMap<String, (Region, bool)>>,
    /// The UUIDs of the blocks in regions. Each is made once, and is not used again after the run.
    uuids: Mutex<BTreeMap<String, [u8; 16]>>,
    tallies: Mutex<Vec<Tally>>,
    own_stores: OwnStores,
}

/// Stores brought by the app's caller, by the namespaces' numbers.
#[derive(Clone, Default)]
pub(crate) struct OwnStores(BTreeMap<u32, Arc<StoreFactory>>);

/// Makes an lcore's store of the given depth.
type StoreFactory = dyn Fn(usize) -> Box<dyn Store> + Send + Sync;

impl OwnStores {
    pub(crate) fn add<S: Store + 'static>(&mut self, nsid: u32, make: impl Fn(usize) -> S + Send + Sync + 'static) {
        self.0.insert(nsid, Arc::new(move |depth| Box::new(make(depth))));
    }
}

impl fmt::Debug for OwnStores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[derive(Debug, Default)]
struct Table {
    entries: Vec<KnownController>,
    /// The number of the last challenge; 0 before the first.
    sequence: u32,
}

#[derive(Debug)]
struct KnownController {
    controller: Arc<Controller>,
    /// The numbers of the connected I/O queues.
    queues: Vec<u16>,
    /// The number of I/O queues that its host may have.
    granted: u16,
    has_admin: bool,
}

/// A queue's place at its controller, to be given back by [`Shared::leave`].
#[derive(Debug)]
pub(crate) struct Seat {
    cntlid: u16,
    qid: u16,
}

/// A stage's counts of reads and writes, for the health log: all that passed the checks, and the
/// bytes of those that succeeded.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) reads: Counter,
    pub(crate) writes: Counter,
    pub(crate) read_bytes: Counter,
    pub(crate) written_bytes: Counter,
}

impl Tally {
    /// Counts the bytes of a command that has succeeded, if it is a Read or a Write.
    #[inline]
    pub(crate) fn moved(&self, command: &Command) {
        let bytes = command.sgl.len_bytes() as u64;
        match command.opcode {
            opcode::io::READ => self.read_bytes.add(bytes),
            opcode::io::WRITE => self.written_bytes.add(bytes),
            _ => {}
        }
    }
}

/// The reason why a queue is not connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// An ended controller of the same host still has commands in flight, or no number is free.
    Busy,
    /// The controller does not exist, or belongs to another host.
    NoController,
    /// The queue is connected already, or was not granted.
    NoQueue,
    /// The controller is not enabled, or has no I/O queues.
    NotReady,
}

impl Shared {
    /// The state at the start of a run. Its discovery log may differ from that of the run before,
    /// and so has a later generation: the time, milliseconds since 1970.
    pub(crate) fn new(own_stores: OwnStores) -> Shared {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Shared { own_stores, generation: since.as_millis() as u64, ..Shared::default() }
    }

    /// Makes the caller's own store for this namespace, of this depth.
    pub(crate) fn own_store(&self, nsid: u32, depth: usize) -> Option<Box<dyn Store>> {
        self.own_stores.0.get(&nsid).map(|make| make(depth))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a controller for an admin queue, and gives the queue its place. The controller's
    /// number is drawn from `cntlids`, so that a host can't guess the numbers of others.
    pub(crate) fn begin(
        &self,
        kind: ControllerType,
        host: Nqn,
        id: [u8; 16],
        cntlids: RangeInclusive<u16>,
    ) -> Result<(Arc<Controller>, Seat), Refusal> {
        let drawn = u64::from_le_bytes(random_bytes().ok_or(Refusal::Busy)?);
        let mut table = self.table();
        // Its writes may be in flight as long as it has an I/O queue.
        let is_left_over = |entry: &KnownController| {
            entry.controller.is_over() && !entry.queues.is_empty() && entry.controller.is_of(&host, &id)
        };
        if table.entries.iter().any(is_left_over) {
            return Err(Refusal::Busy);
        }
        let taken = table.entries.iter().map(|entry| entry.controller.cntlid).collect();
        let cntlid = any_free(cntlids, taken, drawn).ok_or(Refusal::Busy)?;
        let controller = Arc::new(Controller::new(cntlid, kind, host, id));
        table.entries.push(KnownController {
            controller: Arc::clone(&controller),
            queues: Vec::new(),
            granted: 0,
            has_admin: true,
        });
        Ok((controller, Seat { cntlid, qid: 0 }))
    }

    /// The number of the next challenge, never 0; the first derives from the seed.
    pub(crate) fn next_sequence(&self, seed: u32) -> u32 {
        let mut table = self.table();
        table.sequence = if table.sequence == 0 { seed } else { table.sequence.wrapping_add(1) }.max(1);
        table.sequence
    }

    /// Sets the number of I/O queues that a controller's host may have.
    pub(crate) fn grant(&self, controller: &Controller, queues: u16) {
        if let Some(entry) = self.table().find(controller.cntlid) {
            entry.granted = queues;
        }
    }

    /// Whether a controller has I/O queues.
    pub(crate) fn has_queues(&self, controller: &Controller) -> bool {
        self.table().find(controller.cntlid).is_some_and(|entry| !entry.queues.is_empty())
    }

    /// Finds the controller for an I/O queue. It must be of the kind that the queue's Connect
    /// names, which also decides whether the host must authenticate. Nothing changes at the
    /// controller: the queue gets its place by [`Shared::take_seat`].
    pub(crate) fn find(
        &self,
        kind: ControllerType,
        (cntlid, qid): (u16, u16),
        host: &Nqn,
        id: &[u8; 16],
    ) -> Result<Arc<Controller>, Refusal> {
        let mut table = self.table();
        let is_meant = |entry: &&mut KnownController| entry.controller.kind == kind && entry.controller.is_of(host, id);
        let entry = table.find(cntlid).filter(is_meant).ok_or(Refusal::NoController)?;
        entry.may_seat(qid)?;
        Ok(Arc::clone(&entry.controller))
    }

    /// Gives an I/O queue its place at a controller.
    pub(crate) fn take_seat(&self, controller: &Controller, qid: u16) -> Result<Seat, Refusal> {
        let mut table = self.table();
        let entry = table.find(controller.cntlid).ok_or(Refusal::NoController)?;
        entry.may_seat(qid)?;
        entry.queues.push(qid);
        Ok(Seat { cntlid: controller.cntlid, qid })
    }

    /// Gives a seat back: the queue has ended, and its last operation is done. The controller ends
    /// with its admin queue, and is forgotten with its last queue.
    pub(crate) fn leave(&self, seat: Seat) {
        let mut table = self.table();
        let Some(entry) = table.find(seat.cntlid) else { return };
        if seat.qid == 0 {
            entry.controller.end();
            entry.has_admin = false;
        }
        entry.queues.retain(|other| *other != seat.qid);
        table.entries.retain(|entry| entry.has_admin || !entry.queues.is_empty());
    }

    /// Leaves a region's memory for the stages of other lcores.
    pub(crate) fn leave_memory(&self, region: Region) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.insert(region.name().to_owned(), (region, false));
    }

    /// Opens a store in the memory of a region. The first store formats its blocks, and sets the
    /// flag.
    pub(crate) fn memory<E>(
        &self,
        name: &str,
        open: impl FnOnce(&Region, &mut bool) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let (region, is_formatted) = memory.get_mut(name)?;
        Some(open(region, is_formatted))
    }

    /// The UUID of the blocks in a region, whichever namespace they belong to: random. `None` if
    /// the system gives no random bytes.
    pub(crate) fn uuid_of(&self, region: &str) -> Option<[u8; 16]> {
        let mut uuids = self.uuids.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(uuid) = uuids.get(region) {
            return Some(*uuid);
        }
        let mut uuid: [u8; 16] = random_bytes()?;
        (uuid[6], uuid[8]) = (uuid[6] & 0x0F | 4 << 4, uuid[8] & 0x3F | 0x80);
        uuids.insert(region.to_owned(), uuid);
        Some(uuid)
    }

    /// Lets the next store in the memory of a region format its blocks anew.
    pub(crate) fn forget_format(&self, name: &str) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.get_mut(name).into_iter().for_each(|(_, is_formatted)| *is_formatted = false);
    }

    pub(crate) fn add_tally(&self, tally: Tally) {
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner).push(tally);
    }

    /// The tallies of all stages.
    pub(crate) fn tallies(&self) -> Vec<Tally> {
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl KnownController {
    /// Whether an I/O queue of this number may have a place.
    fn may_seat(&self, qid: u16) -> Result<(), Refusal> {
        if self.controller.is_over() || !self.controller.is_ready() || self.controller.kind != ControllerType::Io {
            return Err(Refusal::NotReady);
        }
        if qid == 0 || qid > self.granted || self.queues.contains(&qid) {
            return Err(Refusal::NoQueue);
        }
        Ok(())
    }
}

impl Table {
    fn find(&mut self, cntlid: u16) -> Option<&mut KnownController> {
        self.entries.iter_mut().find(|entry| entry.controller.cntlid == cntlid)
    }
}

/// Returns `N` random bytes of the system, for challenges and for names that must not be guessed.
/// `None` if the system gives none.
pub(crate) fn random_bytes<const N: usize>() -> Option<[u8; N]> {
    let mut random = [0; N];
    let got = getrandom(&mut random, GetRandomFlags::empty()).ok()?;
    (got == N).then_some(random)
}

/// Picks one of the numbers that are not taken, each with the same probability.
fn any_free(numbers: RangeInclusive<u16>, mut taken: Vec<u16>, drawn: u64) -> Option<u16> {
    let (first, last) = (u32::from(*numbers.start()), u32::from(*numbers.end()));
    taken.retain(|taken| numbers.contains(taken));
    taken.sort_unstable();
    let free = (u64::from(last) + 1).saturating_sub(u64::from(first) + taken.len() as u64);
    let mut chosen = first + drawn.checked_rem(free)? as u32;
    // Each taken number that is not greater moves the choice on by one.
    for taken in taken {
        chosen += u32::from(u32::from(taken) <= chosen);
    }
    u16::try_from(chosen).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_is_given_that_is_not_taken_and_no_other() {
        for (numbers, taken) in [
            (1..=5, vec![]),
            (1..=5, vec![3, 1]),
            (1..=5, vec![5, 4, 3, 2, 1]),
            (7..=7, vec![9]),
            (0xFFFE..=0xFFFF, vec![0xFFFE]),
        ] {
            let free: Vec<_> = numbers.clone().filter(|number| !taken.contains(number)).collect();
            let given: Vec<_> =
                (0..free.len() as u64).filter_map(|drawn| any_free(numbers.clone(), taken.clone(), drawn)).collect();
            assert_eq!(given, free, "{numbers:?} without {taken:?}");
            assert_eq!(any_free(numbers, taken, u64::MAX).is_some(), !free.is_empty());
        }
    }
}
