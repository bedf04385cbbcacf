//! The disk: a medium, a cache over it, and what a crash leaves of both.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use fastrand::Rng;

use crate::request::Fault;
use crate::store::{Geometry, GeometryError};

/// The faults of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// One request in this number fails with [`Fault::Medium`]; what it was to change is then
    /// changed in parts. 0: none.
    pub error_once_in: u32,
    /// The most polls after which a request is done.
    pub latency_polls_max: u32,
    /// The unit in which a crash leaves parts of a block; 0: whole blocks.
    pub tear_bytes: u32,
    /// One flush in this number does nothing, and says that it is done. 0: none.
    pub lost_flush_once_in: u32,
    /// Writes with `fua` only reach the cache, and say that they are done.
    pub ignores_fua: bool,
}

/// A disk, with its cache; clones are the same disk. See the [module](super).
#[derive(Clone, Debug)]
pub struct Disk {
    state: Arc<Mutex<State>>,
    geometry: Geometry,
    faults: Faults,
}

#[derive(Debug)]
pub(super) struct State {
    /// The contents after a crash.
    medium: Vec<u8>,
    /// The contents as read.
    current: Vec<u8>,
    /// Writes since the last one on the medium, by unit of tearing.
    cached: BTreeMap<usize, Vec<Version>>,
    unit_bytes: usize,
    /// The number of the latest write.
    sequence: u64,
    /// Crashes so far: a store over an earlier time is dead.
    pub(super) crashes: u64,
    pub(super) stalled: bool,
    pub(super) failing: Option<Fault>,
    pub(super) rng: Rng,
    /// Writes that stores have under way, by store and number: a crash may leave parts of them.
    under_way: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    pub(super) stores: u64,
}

#[derive(Debug)]
struct Version {
    sequence: u64,
    bytes: Vec<u8>,
}

impl Disk {
    /// A disk of `len_bytes`, which read as zeros.
    ///
    /// # Errors
    /// Blocks can't be of this size.
    pub fn new(len_bytes: usize, block_bytes: u32, faults: Faults, seed: u64) -> Result<Disk, GeometryError> {
        let geometry = Geometry { volatile_cache: true, ..Geometry::of_bytes(len_bytes as u64, block_bytes)? };
        let len_bytes = geometry.len_bytes() as usize;
        let unit_bytes = if faults.tear_bytes == 0 { block_bytes } else { faults.tear_bytes.min(block_bytes) };
        let state = State {
            medium: vec![0; len_bytes],
            current: vec![0; len_bytes],
            cached: BTreeMap::new(),
            unit_bytes: unit_bytes as usize,
            sequence: 0,
            crashes: 0,
            stalled: false,
            failing: None,
            rng: Rng::with_seed(seed),
            under_way: BTreeMap::new(),
            stores: 0,
        };
        Ok(Disk { state: Arc::new(Mutex::new(state)), geometry, faults })
    }

    /// Its size and blocks.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the faults.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.faults
    }

    /// Takes the power away, and gives it back: the medium is all that is left, with what happened
    /// to reach it of the cache and of what was under way. Stores over the disk are dead: what they
    /// have under way fails with [`Fault::Closed`], as does all that they are given later.
    pub fn crash(&self) {
        let state = &mut *self.lock();
        state.crashes += 1;
        for (offset, bytes) in std::mem::take(&mut state.under_way).into_values() {
            state.cache(offset, &bytes);
        }
        for (unit, versions) in std::mem::take(&mut state.cached) {
            // As it was on the medium, or as any write since left it: caches write in any order.
            if let Some(version) = versions.get(state.rng.usize(0..=versions.len())) {
                let offset = unit * state.unit_bytes;
                state.medium[offset..offset + version.bytes.len()].copy_from_slice(&version.bytes);
            }
        }
        state.current.clone_from(&state.medium);
    }

    /// While it stalls nothing is done.
    pub fn stall(&self, stalled: bool) {
        self.lock().stalled = stalled;
    }

    /// From now on every change and flush fails with this; `None`: no more.
    pub fn fail_changes(&self, with: Option<Fault>) {
        self.lock().failing = with;
    }

    /// Returns all contents as read now.
    #[must_use]
    pub fn contents(&self) -> Vec<u8> {
        self.lock().current.clone()
    }

    /// Changes a byte on the medium and in the cache behind everybody's back, as rot does.
    pub fn corrupt(&self, offset: usize) {
        let state = &mut *self.lock();
        state.medium[offset] ^= 0xFF;
        state.current[offset] ^= 0xFF;
    }

    /// Bytes that a crash may take back.
    #[must_use]
    pub fn unflushed_bytes(&self) -> usize {
        let state = self.lock();
        state.cached.len() * state.unit_bytes
    }

    /// A test that panicked while it held the lock left at worst a write half done: as disks do.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl State {
    pub(super) fn read(&self, offset: usize, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.current[offset..offset + bytes.len()]);
    }

    /// A write is under way: a crash may leave parts of it from here on.
    pub(super) fn begin(&mut self, store: u64, number: u64, offset: usize, bytes: Vec<u8>) {
        self.under_way.insert((store, number), (offset, bytes));
    }

    /// It is over, one way or another.
    pub(super) fn end(&mut self, store: u64, number: u64) -> Option<(usize, Vec<u8>)> {
        self.under_way.remove(&(store, number))
    }

    /// Into the cache: read from here on, and lost or not in a crash.
    pub(super) fn cache(&mut self, offset: usize, bytes: &[u8]) {
        self.sequence += 1;
        self.current[offset..offset + bytes.len()].copy_from_slice(bytes);
        for (number, bytes) in bytes.chunks(self.unit_bytes).enumerate() {
            let version = Version { sequence: self.sequence, bytes: bytes.to_vec() };
            self.cached.entry(offset / self.unit_bytes + number).or_default().push(version);
        }
    }

    /// About half of it, in whole units of tearing.
    pub(super) fn first_half<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[..bytes.len() / self.unit_bytes / 2 * self.unit_bytes]
    }

    /// Onto the medium.
    pub(super) fn persist(&mut self, offset: usize, bytes: &[u8]) {
        self.current[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.medium[offset..offset + bytes.len()].copy_from_slice(bytes);
        for number in 0..bytes.len() / self.unit_bytes {
            self.cached.remove(&(offset / self.unit_bytes + number));
        }
    }

    /// The latest write that is done.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Writes the cache to the medium, as it was after this write.
    pub(super) fn flush(&mut self, sequence: u64) {
        let (medium, unit_bytes) = (&mut self.medium, self.unit_bytes);
        self.cached.retain(|unit, versions| {
            if let Some(last) = versions.iter().rposition(|version| version.sequence <= sequence) {
                let bytes = &versions[last].bytes;
                medium[unit * unit_bytes..unit * unit_bytes + bytes.len()].copy_from_slice(bytes);
                versions.drain(..=last);
            }
            !versions.is_empty()
        });
    }
}
