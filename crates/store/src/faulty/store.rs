//! A store over the disk.

use std::collections::VecDeque;

use super::disk::{Disk, Faults, State};
use crate::request::{Done, Fault, Op, Request};
use crate::store::{Extent, Geometry, Store};

/// A store of one lcore over a [`Disk`].
#[derive(Debug)]
pub struct FaultyStore {
    disk: Disk,
    /// Its number among the disk's.
    id: u64,
    /// The disk's crashes when it was made.
    crashes: u64,
    depth: usize,
    started: Vec<Started>,
    /// The number of the next request.
    number: u64,
    polls: u64,
}

#[derive(Debug)]
struct Started {
    request: Request,
    extent: Result<Extent, Fault>,
    number: u64,
    due_poll: u64,
    /// The disk's latest write when it was submitted: what a flush is about.
    sequence: u64,
}

impl FaultyStore {
    /// With at most `depth` requests under way, above 0.
    #[must_use]
    pub fn over(disk: &Disk, depth: usize) -> FaultyStore {
        let (id, crashes) = {
            let mut state = disk.lock();
            state.stores += 1;
            (state.stores, state.crashes)
        };
        let depth = depth.max(1);
        let started = Vec::with_capacity(depth);
        FaultyStore { disk: disk.clone(), id, crashes, depth, started, number: 0, polls: 0 }
    }

    fn start(&mut self, request: Request) {
        let extent = self.disk.geometry().extent(&request);
        let mut state = self.disk.lock();
        let number = self.number;
        self.number += 1;
        if let Ok(extent) = extent
            && self.crashes == state.crashes
            && let Some(bytes) = written(&request, extent, &mut state)
        {
            state.begin(self.id, number, extent.offset as usize, bytes);
        }
        let due_poll = self.polls + u64::from(state.rng.u32(0..=self.disk.faults().latency_polls_max));
        let sequence = state.sequence();
        drop(state);
        self.started.push(Started { request, extent, number, due_poll, sequence });
    }
}

/// Returns the bytes that a request writes; `None` if none.
fn written(request: &Request, extent: Extent, state: &mut State) -> Option<Vec<u8>> {
    match (request.op, &request.packet) {
        (Op::Write { .. }, Some(packet)) => Some(packet.data().to_vec()),
        (Op::WriteZeroes { .. }, _) => Some(vec![0; extent.len as usize]),
        // Either is allowed.
        (Op::Discard, _) if state.rng.bool() => Some(vec![0; extent.len as usize]),
        _ => None,
    }
}

/// Carries a request out on the disk.
fn carry_out(store: u64, started: &mut Started, faults: Faults, state: &mut State) -> Result<(), Fault> {
    let write = state.end(store, started.number);
    let extent = started.extent?;
    let op = started.request.op;
    if let Some(fault) = state.failing.filter(|_| op.is_change() || op == Op::Flush) {
        return Err(fault);
    }
    if faults.error_once_in > 0 && state.rng.u32(0..faults.error_once_in) == 0 {
        if let Some((offset, bytes)) = write {
            state.cache(offset, state.first_half(&bytes));
        }
        return Err(Fault::Medium);
    }
    match (op, &mut started.request.packet) {
        (Op::Read, Some(packet)) => state.read(extent.offset as usize, packet.data_mut()),
        (Op::Flush, _) if faults.lost_flush_once_in > 0 && state.rng.u32(0..faults.lost_flush_once_in) == 0 => {}
        (Op::Flush, _) => state.flush(started.sequence),
        (Op::Write { fua: true } | Op::WriteZeroes { fua: true, .. }, _) if !faults.ignores_fua => {
            write.iter().for_each(|(offset, bytes)| state.persist(*offset, bytes));
        }
        _ => write.iter().for_each(|(offset, bytes)| state.cache(*offset, bytes)),
    }
    Ok(())
}

impl Store for FaultyStore {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }

    fn submit(&mut self, requests: &mut VecDeque<Request>) -> usize {
        let taken = requests.len().min(self.room());
        for request in requests.drain(..taken) {
            self.start(request);
        }
        taken
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> usize {
        self.polls += 1;
        let mut state = self.disk.lock();
        let before = done.len();
        let mut at = 0;
        // In no order: what is due is taken by swapping.
        while at < self.started.len() && done.len() < done.capacity() {
            let is_dead = self.crashes != state.crashes;
            if !is_dead && (state.stalled || self.started[at].due_poll > self.polls) {
                at += 1;
                continue;
            }
            let mut started = self.started.swap_remove(at);
            let result = match is_dead {
                true => Err(Fault::Closed),
                false => carry_out(self.id, &mut started, self.disk.faults(), &mut state),
            };
            done.push(started.request.done(result));
        }
        done.len() - before
    }

    fn under_way(&self) -> usize {
        self.started.len()
    }

    fn room(&self) -> usize {
        self.depth - self.started.len()
    }
}

impl Drop for FaultyStore {
    /// Requests under way are never done, as when a process is killed. The disk has seen them, so
    /// that they may have had effect.
    fn drop(&mut self) {
        let mut state = self.disk.lock();
        if self.crashes == state.crashes {
            for started in &self.started {
                if let Some((offset, bytes)) = state.end(self.id, started.number)
                    && state.rng.bool()
                {
                    state.cache(offset, &bytes);
                }
            }
        }
    }
}
