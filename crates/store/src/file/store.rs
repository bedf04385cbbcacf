//! The store over a file's ring.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};

use verbline_mem::Packet;
use verbline_mem::uring::{Completed, FileRing, PushError, Submission};

use super::claim::Claim;
use super::device::Device;
use super::identity::Identity;
use super::sectors::Sectors;
use super::steps::{After, Lacks, Steps};
use crate::immediate::hand_out;
use crate::request::{Done, Fault, Op, Request};
use crate::store::{Geometry, Store};

/// A file or block device as a store of one lcore. See the [module](super).
#[derive(Debug)]
pub struct FileStore<D: Device = FileRing> {
    device: D,
    geometry: Geometry,
    depth: usize,
    /// By the tag of the ring's entries.
    steps: Box<[Option<Steps>]>,
    free: Vec<u32>,
    /// Completions of the ring, on their way through `poll`.
    completed: Vec<Completed>,
    done: VecDeque<Done>,
    lacks: Lacks,
    /// Set once durable data was lost: no store of the file promises anything from then on.
    lost: Arc<OnceLock<Fault>>,
    /// The ring is broken: why every request fails from then on.
    broken: Option<Fault>,
    /// Something was pushed that the kernel did not take yet.
    unsubmitted: bool,
    counts: FileCounts,
    notes: Vec<String>,
    claim: Option<Arc<Claim>>,
    /// A block device's.
    sectors: Option<Sectors>,
}

/// Counters of events beside the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCounts {
    /// Transfers that the kernel cut short, and that went on.
    pub cut_short: u64,
    /// Steps that the kernel couldn't do when asked (EAGAIN, EINTR), and was asked again.
    pub tried_again: u64,
    /// Submissions that the kernel didn't take all of when asked.
    pub submitted_again: u64,
    /// Requests that failed since the ring is broken ([`Fault::RingBroken`]).
    pub ring_broken: u64,
}

impl<D: Device> FileStore<D> {
    /// Over a device of at least this depth, with nothing under way.
    pub fn over(device: D, geometry: Geometry, depth: usize, notes: Vec<String>) -> FileStore<D> {
        let depth = depth.max(1);
        FileStore {
            device,
            geometry,
            depth,
            steps: vec![None; depth].into(),
            free: (0..depth as u32).rev().collect(),
            completed: Vec::with_capacity(depth),
            done: VecDeque::with_capacity(depth),
            lacks: Lacks::default(),
            lost: Arc::default(),
            broken: None,
            unsubmitted: false,
            counts: FileCounts::default(),
            notes,
            claim: None,
            sectors: None,
        }
    }

    /// Bytes that a store sets aside for `depth` requests, beside its ring.
    #[must_use]
    pub fn queue_bytes(depth: u64) -> u64 {
        let each = size_of::<Option<Steps>>() + size_of::<u32>() + size_of::<Completed>() + size_of::<Done>();
        depth * each as u64
    }

    /// With what keeps others from its file.
    pub(super) fn claiming(self, claim: Arc<Claim>) -> FileStore<D> {
        FileStore { lost: Arc::clone(&claim.lost), claim: Some(claim), ..self }
    }

    /// With what tells how long it is without waiting.
    pub(super) fn measured_by(self, sectors: Option<Sectors>) -> FileStore<D> {
        FileStore { sectors, ..self }
    }

    /// The name of the blocks; a device of a test has none.
    pub fn identity(&self) -> Option<Identity> {
        self.claim.as_ref().map(|claim| claim.identity())
    }

    /// Returns notes for the user, e.g. that there is no direct I/O, or that buffers are not
    /// registered.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the counters of events beside the requests.
    pub fn counts(&self) -> FileCounts {
        self.counts
    }

    /// Starts a request, or says at once how it ended.
    fn start(&mut self, request: Request) {
        let planned = self.plan(&request);
        self.counts.ring_broken += u64::from(matches!(planned, Err(Fault::RingBroken(_))));
        let Request { op, packet, tag, .. } = request;
        match planned {
            Ok(Some(steps)) => self.step(steps, packet),
            Ok(None) => self.done.push_back(Done { tag, op, result: Ok(()), packet }),
            Err(fault) => self.done.push_back(Done { tag, op, result: Err(fault), packet }),
        }
    }

    fn plan(&self, request: &Request) -> Result<Option<Steps>, Fault> {
        if let Some(fault) = self.broken {
            return Err(fault);
        }
        let is_promise = matches!(request.op, Op::Flush | Op::Write { fua: true } | Op::WriteZeroes { fua: true, .. });
        if is_promise && let Some(fault) = self.lost.get() {
            return Err(*fault);
        }
        let extent = self.geometry.extent(request)?;
        Ok(Steps::of(request.op, request.tag, extent, self.lacks))
    }

    /// Gives the request's next step to the ring.
    fn step(&mut self, steps: Steps, packet: Option<Packet>) {
        let Some(index) = self.free.pop() else {
            // There is room for all that `submit` takes.
            return self.end(steps, packet, Err(Fault::BadMemory));
        };
        match self.device.push(Submission { what: steps.what(), packet, tag: index.into() }) {
            Ok(()) => {
                self.steps[index as usize] = Some(steps);
                self.unsubmitted = true;
            }
            Err((entry, error)) => {
                self.free.push(index);
                let fault = match error {
                    PushError::NoData => Fault::BadMemory,
                    // Neither is met: there is room, and nothing is pushed once the ring is broken.
                    PushError::Full | PushError::Broken => Fault::Os(rustix::io::Errno::BUSY.raw_os_error()),
                };
                self.end(steps, entry.packet, Err(fault));
            }
        }
    }

    fn end(&mut self, steps: Steps, packet: Option<Packet>, result: Result<(), Fault>) {
        self.done.push_back(Done { tag: steps.tag, op: steps.op, result, packet });
    }

    fn submit_pushed(&mut self) {
        if !self.unsubmitted || self.broken.is_some() {
            return;
        }
        match self.device.submit() {
            Ok(all) => {
                self.unsubmitted = !all;
                self.counts.submitted_again += u64::from(!all);
            }
            Err(error) => self.fail_for_good(Fault::RingBroken(error.raw_os_error().unwrap_or_default())),
        }
    }

    /// The ring takes nothing any more: the requests that the kernel did not take are over. Those
    /// that it took complete, and fail where they need another step.
    fn fail_for_good(&mut self, fault: Fault) {
        (self.broken, self.unsubmitted) = (Some(fault), false);
        let FileStore { device, steps, free, done, counts, .. } = self;
        device.take_back(&mut |tag, packet| {
            let Some(steps) = steps.get_mut(tag as usize).and_then(Option::take) else { return };
            free.push(tag as u32);
            counts.ring_broken += 1;
            done.push_back(Done { tag: steps.tag, op: steps.op, result: Err(fault), packet });
        });
    }

    /// One step of a request is over.
    fn stepped(&mut self, completed: Completed) {
        let Some(mut steps) = self.steps.get_mut(completed.tag as usize).and_then(Option::take) else { return };
        self.free.push(completed.tag as u32);
        match (steps.advance(completed.result, self.align(), &mut self.lacks), self.broken) {
            (After::GoOn | After::Again, Some(fault)) => {
                self.counts.ring_broken += 1;
                self.end(steps, completed.packet, Err(fault));
            }
            (After::GoOn, None) => {
                self.counts.cut_short += u64::from(steps.op.moves_data());
                self.step(steps, completed.packet);
            }
            (After::Again, None) => {
                self.counts.tried_again += 1;
                self.step(steps, completed.packet);
            }
            (After::Done(result), _) => {
                if let Err(fault) = result
                    && steps.has_lost(fault)
                {
                    // Somebody else's reason is as good.
                    let _ = self.lost.set(fault);
                }
                self.end(steps, completed.packet, result);
            }
        }
    }

    /// Returns the granularity at which a cut transfer goes on: blocks with direct I/O, else bytes.
    fn align(&self) -> u32 {
        if self.geometry.align_bytes > 1 { self.geometry.block_bytes } else { 1 }
    }
}

impl<D: Device> Store for FileStore<D> {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, requests: &mut VecDeque<Request>) -> usize {
        let taken = requests.len().min(self.room());
        for request in requests.drain(..taken) {
            self.start(request);
        }
        self.submit_pushed();
        taken
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> usize {
        if self.device.under_way() > 0 {
            let (device, completed) = (&mut self.device, &mut self.completed);
            device.complete(self.depth, &mut |one| completed.push(one));
            // Moved out for the loop, and back with its capacity.
            let mut completed = std::mem::take(&mut self.completed);
            completed.drain(..).for_each(|one| self.stepped(one));
            self.completed = completed;
            self.submit_pushed();
        }
        hand_out(&mut self.done, done)
    }

    fn under_way(&self) -> usize {
        self.device.under_way() + self.done.len()
    }

    fn room(&self) -> usize {
        self.depth - self.under_way()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.device.wake_fd()
    }

    fn may_sleep(&self) -> bool {
        self.done.is_empty() && !self.unsubmitted
    }

    fn refresh(&mut self) -> io::Result<Geometry> {
        let len_bytes = self.sectors.as_ref().map_or_else(|| self.device.len_bytes(), Sectors::len_bytes)?;
        self.geometry.blocks = len_bytes / u64::from(self.geometry.block_bytes);
        Ok(self.geometry)
    }
}
