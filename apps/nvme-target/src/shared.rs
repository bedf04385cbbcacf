//! What the lcores of a target share: its controllers, and what its stages leave for one another.
//! Behind locks, which no read or write takes.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use verbline::engine::Region;
use verbline::prelude::*;
use verbline_nvme::Nqn;
use verbline_nvme::identify::ControllerType;
use verbline_store::{Resizer, Store};

use crate::admission::Admissions;
use crate::controller::Controller;
use crate::random;

/// The shared part.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The generation of the discovery log, which does not change in a run.
    pub(crate) generation: u64,
    table: Mutex<Table>,
    pub(crate) admissions: Admissions,
    /// The memory of namespaces, by the region's name: the stage that owns it leaves it here.
    memory: Mutex<BTreeMap<String, (Region, Option<Resizer>)>>,
    /// The names of the blocks in regions: made once, and no others' after the run.
    uuids: Mutex<BTreeMap<String, [u8; 16]>>,
    tallies: Mutex<Vec<Tally>>,
    own_stores: OwnStores,
}

/// The stores that the app's caller brings, by their namespaces' numbers.
#[derive(Clone, Default)]
pub(crate) struct OwnStores(BTreeMap<u32, Arc<StoreFactory>>);

/// Makes the store of an lcore, with the depth that it is given.
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
    /// The number of the last challenge; 0: there was none.
    sequence: u32,
}

#[derive(Debug)]
struct KnownController {
    controller: Arc<Controller>,
    /// The I/O queues that there are, by number.
    queues: Vec<u16>,
    /// The I/O queues that its host may have.
    granted: u16,
    has_admin: bool,
}

/// The place of a queue at its controller. It is given back by [`Shared::leave`].
#[derive(Debug)]
pub(crate) struct Seat {
    cntlid: u16,
    qid: u16,
}

/// What a stage counts of reads and writes, for the health log.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) reads: Counter,
    pub(crate) writes: Counter,
    pub(crate) read_bytes: Counter,
    pub(crate) written_bytes: Counter,
}

/// Why a queue is not connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A controller of the host that is over has commands under way, or there is no free number.
    Busy,
    /// There is no such controller, or it is another host's.
    NoController,
    /// The queue is there already, or was not granted.
    NoQueue,
    /// The controller is not enabled, or has no I/O queues.
    NotReady,
}

impl Shared {
    /// What a run begins with. Its discovery log may differ from that of the run before, so that
    /// its generation is a later one: the time, milliseconds since 1970.
    pub(crate) fn new(own_stores: OwnStores) -> Shared {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Shared { own_stores, generation: since.as_millis() as u64, ..Shared::default() }
    }

    /// The caller's own store under this namespace, of this depth.
    pub(crate) fn own_store(&self, nsid: u32, depth: usize) -> Option<Box<dyn Store>> {
        self.own_stores.0.get(&nsid).map(|make| make(depth))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a controller for an admin queue, and gives that its place. The controller's number is
    /// any of `cntlids`: nobody is to guess those of others.
    pub(crate) fn begin(
        &self,
        kind: ControllerType,
        host: Nqn,
        id: [u8; 16],
        cntlids: RangeInclusive<u16>,
    ) -> Result<(Arc<Controller>, Seat), Refusal> {
        let drawn = u64::from_le_bytes(random::bytes().ok_or(Refusal::Busy)?);
        let mut table = self.table();
        // Its writes may be under way as long as an I/O queue of it is there.
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

    /// The number of the next challenge, which is never 0; the first one is of the seed.
    pub(crate) fn next_sequence(&self, seed: u32) -> u32 {
        let mut table = self.table();
        table.sequence = if table.sequence == 0 { seed } else { table.sequence.wrapping_add(1) }.max(1);
        table.sequence
    }

    /// How many I/O queues a controller's host may have.
    pub(crate) fn grant(&self, controller: &Controller, queues: u16) {
        if let Some(entry) = self.table().find(controller.cntlid) {
            entry.granted = queues;
        }
    }

    /// Whether a controller has I/O queues.
    pub(crate) fn has_queues(&self, controller: &Controller) -> bool {
        self.table().find(controller.cntlid).is_some_and(|entry| !entry.queues.is_empty())
    }

    /// The controller that an I/O queue may be connected to, of the kind that the queue's Connect
    /// names: what the host has to prove hangs on that. Nothing there changes: the queue gets its
    /// place by [`Shared::take_seat`].
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

    /// A queue has ended, and nothing of it is under way. The controller ends with its admin queue,
    /// and is forgotten with the last one.
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

    /// Leaves the memory of a region for the stages of other lcores.
    pub(crate) fn leave_memory(&self, region: Region) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.insert(region.name().to_owned(), (region, None));
    }

    /// The memory of a region, and what all its stores go by; the first store says that.
    pub(crate) fn memory<E>(
        &self,
        name: &str,
        open: impl FnOnce(&Region, &mut Option<Resizer>) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let (region, resizer) = memory.get_mut(name)?;
        Some(open(region, resizer))
    }

    /// The name of the blocks in a region, whichever namespace has them: a random UUID. `None`: the
    /// system gives no random bytes.
    pub(crate) fn uuid_of(&self, region: &str) -> Option<[u8; 16]> {
        let mut uuids = self.uuids.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(uuid) = uuids.get(region) {
            return Some(*uuid);
        }
        let mut uuid: [u8; 16] = random::bytes()?;
        (uuid[6], uuid[8]) = (uuid[6] & 0x0F | 4 << 4, uuid[8] & 0x3F | 0x80);
        uuids.insert(region.to_owned(), uuid);
        Some(uuid)
    }

    /// The next store in the memory of a region says anew how many blocks there are.
    pub(crate) fn forget_size(&self, name: &str) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.get_mut(name).into_iter().for_each(|(_, resizer)| *resizer = None);
    }

    pub(crate) fn add_tally(&self, tally: Tally) {
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner).push(tally);
    }

    /// What all stages counted.
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

/// One of the numbers that are not taken, each as likely as the others.
fn any_free(numbers: RangeInclusive<u16>, mut taken: Vec<u16>, drawn: u64) -> Option<u16> {
    let (first, last) = (u32::from(*numbers.start()), u32::from(*numbers.end()));
    taken.retain(|taken| numbers.contains(taken));
    taken.sort_unstable();
    let free = (u64::from(last) + 1).saturating_sub(u64::from(first) + taken.len() as u64);
    let mut chosen = first + drawn.checked_rem(free)? as u32;
    // Each that is taken and not above it moves it on.
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
