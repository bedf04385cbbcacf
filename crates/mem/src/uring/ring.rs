//! The ring: entries in, completions out, and the packets of both; pools as its registered buffers.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};

use super::ZEROS_MAX;
use super::error::RingError;
use super::slots::Slots;
use super::submission::{Completed, PushError, RingSpec, Submission, What};
use crate::packet::Packet;
use crate::pool::Pool;

/// How long a ring that is dropped waits for what is under way.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);

/// The file's number in the ring's table.
const FILE: types::Fixed = types::Fixed(0);

/// The source of [`What::WriteZeros`]. Aligned for direct I/O.
#[repr(align(4096))]
struct Zeros([u8; ZEROS_MAX as usize]);

static ZEROS: Zeros = Zeros([0; ZEROS_MAX as usize]);

/// One file, driven by one thread at a time. See the [module](super).
pub struct FileRing {
    /// Declared first, so that the ring goes before what its entries use; `drop` has seen to it
    /// that no entry is left that the kernel works on, or that its packet stays for good.
    ring: IoUring,
    slots: Slots,
    buffers: Buffers,
    /// Why no pool is registered, if any was to be.
    unregistered: Option<io::Error>,
    file: OwnedFd,
    /// Completions of entries that are not under way: a kernel's fault.
    unknown: u64,
    /// The kernel's error as it refused entries for good (errno(3)). Nothing is submitted after it:
    /// the entries in the queue have lost their packets ([`FileRing::take_back`]).
    broken: Option<i32>,
}

impl FileRing {
    /// Makes the ring for the file.
    ///
    /// # Errors
    /// Each says what the kernel lacks, and what to do.
    pub fn open(file: OwnedFd, spec: &RingSpec) -> Result<FileRing, RingError> {
        let depth = spec.depth;
        if !(1..=16_384).contains(&depth) {
            return Err(RingError::Depth { depth });
        }
        let ring = build(spec).map_err(|source| RingError::of_setup(source, depth))?;
        ring.submitter().register_files(&[file.as_raw_fd()]).map_err(|source| RingError::System {
            call: "io_uring_register(2) of the file",
            depth,
            source,
            remedy: "allow io_uring_register in the seccomp filter, and one more open file (`ulimit -n`)",
        })?;
        let (slots, buffers) = (Slots::new(depth), Buffers::default());
        let mut ring = FileRing { ring, slots, buffers, unregistered: None, file, unknown: 0, broken: None };
        ring.register(&spec.pools);
        Ok(ring)
    }

    /// Registers these pools, or remembers why not ([`FileRing::unregistered`]): everything works
    /// without.
    fn register(&mut self, pools: &[Pool]) {
        let Some((buffers, vectors)) = Buffers::plan(pools) else { return };
        // SAFETY: the vectors are whole regions of pools, which `buffers` keeps alive, and with it
        // their addresses, until the ring is gone (the order of fields, and `drop`). A region is
        // raw memory: what the kernel writes there it writes for an entry, which owns its packet.
        match unsafe { self.ring.submitter().register_buffers(&vectors) } {
            Ok(()) => self.buffers = buffers,
            Err(error) => self.unregistered = Some(error),
        }
    }

    /// Why the pools are not registered, if they were to be: locked memory may be too little
    /// (`ulimit -l`). The ring works, and each transfer costs a lookup of pages.
    #[must_use]
    pub fn unregistered(&self) -> Option<&io::Error> {
        self.unregistered.as_ref()
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The ring's own descriptor: readable while there are completions to take.
    #[must_use]
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring's descriptor, open as long as the ring, which the borrow keeps alive.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// Entries that were pushed and whose completion was not taken.
    #[inline]
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.slots.used()
    }

    /// Entries that can be pushed now.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.slots.room()
    }

    /// Completions of entries that were not under way: above 0 is a fault of the kernel.
    #[must_use]
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Takes an entry, for the next [`FileRing::submit`].
    ///
    /// # Errors
    /// It comes back, with the reason.
    #[inline]
    pub fn push(&mut self, entry: Submission) -> Result<(), (Submission, PushError)> {
        if self.broken.is_some() {
            return Err((entry, PushError::Broken));
        }
        let Some(sqe) = self.sqe(&entry) else { return Err((entry, PushError::NoData)) };
        let Submission { what, packet, tag } = entry;
        let index = match self.slots.put(tag, packet) {
            Ok(index) => index,
            Err(packet) => return Err((Submission { what, packet, tag }, PushError::Full)),
        };
        let sqe = sqe.user_data(index.into());
        // SAFETY: the entry's buffer is its packet's data, or ZEROS, which is never written. The
        // packet is the only right to its buffer, and lies in the slot, where nobody reaches it,
        // until the kernel says that it is done (`complete`), or for good (`drop`), or until the
        // kernel is never again asked to take the entry (`take_back`). The file is the ring's own.
        let pushed = unsafe { self.ring.submission().push(&sqe) };
        if pushed.is_ok() {
            return Ok(());
        }
        // The queue has as many places as there are slots, so this is not met.
        let packet = self.slots.undo_put(index);
        Err((Submission { what, packet, tag }, PushError::Full))
    }

    /// Returns the submission queue entry; `None` for a transfer of 0 bytes.
    #[inline]
    fn sqe(&self, entry: &Submission) -> Option<squeue::Entry> {
        let rw_flags = |dsync| if dsync { libc::RWF_DSYNC } else { 0 };
        Some(match entry.what {
            What::Read { offset, skip } => {
                let (packet, addr, len) = part(entry.packet.as_ref(), skip)?;
                let buf = std::ptr::with_exposed_provenance_mut::<u8>(addr as usize);
                match self.buffers.index_of(packet) {
                    Some(index) => opcode::ReadFixed::new(FILE, buf, len, index).offset(offset).build(),
                    None => opcode::Read::new(FILE, buf, len).offset(offset).build(),
                }
            }
            What::Write { offset, skip, dsync } => {
                let (packet, addr, len) = part(entry.packet.as_ref(), skip)?;
                let buf = std::ptr::with_exposed_provenance::<u8>(addr as usize);
                let flags = rw_flags(dsync);
                match self.buffers.index_of(packet) {
                    Some(index) => {
                        opcode::WriteFixed::new(FILE, buf, len, index).offset(offset).rw_flags(flags).build()
                    }
                    None => opcode::Write::new(FILE, buf, len).offset(offset).rw_flags(flags).build(),
                }
            }
            What::WriteZeros { offset, len, dsync } => {
                let fits = (1..=ZEROS_MAX).contains(&len);
                let write = opcode::Write::new(FILE, fits.then_some(ZEROS.0.as_ptr())?, len);
                write.offset(offset).rw_flags(rw_flags(dsync)).build()
            }
            What::Sync => opcode::Fsync::new(FILE).flags(types::FsyncFlags::DATASYNC).build(),
            What::ZeroRange { offset, len } => {
                opcode::Fallocate::new(FILE, len).offset(offset).mode(libc::FALLOC_FL_ZERO_RANGE | KEEP).build()
            }
            What::PunchHole { offset, len } => {
                opcode::Fallocate::new(FILE, len).offset(offset).mode(libc::FALLOC_FL_PUNCH_HOLE | KEEP).build()
            }
        })
    }

    /// Hands the kernel what was pushed: one system call, or none if there is nothing. Gives
    /// whether it has all. False: it wants memory, or completions taken, first; call it again
    /// later.
    ///
    /// # Errors
    /// Anything else that the kernel says, which trying again does not mend: the ring is broken
    /// from then on. [`FileRing::take_back`] has the entries that the kernel did not take; those
    /// that it took complete as ever.
    pub fn submit(&mut self) -> io::Result<bool> {
        if let Some(errno) = self.broken {
            return Err(io::Error::from_raw_os_error(errno));
        }
        if self.ring.submission().is_empty() {
            return Ok(true);
        }
        match self.ring.submit() {
            Ok(_) => Ok(self.ring.submission().is_empty()),
            Err(error) if is_passing(&error) => Ok(false),
            Err(error) => {
                self.broken = Some(error.raw_os_error().unwrap_or(libc::EIO));
                Err(error)
            }
        }
    }

    /// Takes back, with their tags and packets, the entries that the kernel did not take before the
    /// ring broke; none of a ring that works.
    pub fn take_back(&mut self, each: impl FnMut(u64, Option<Packet>)) {
        if self.broken.is_some() {
            // Without a thread of the kernel's that polls the queue, which no ring here has, the
            // kernel reads entries only when it is asked to take some.
            let untaken = self.ring.submission().len();
            self.slots.take_last(untaken, each);
        }
    }

    /// Takes what is done, at most `most`, and gives each to `each`; gives how many.
    pub fn complete(&mut self, most: usize, mut each: impl FnMut(Completed)) -> usize {
        let mut taken = self.take_queued(most, &mut each);
        // The kernel has work to do in this thread's name. A broken ring leaves that to the
        // thread's next way out of the kernel, since the call would hand over entries as well.
        if taken < most && self.broken.is_none() && self.ring.submission().taskrun() {
            // After EAGAIN, EBUSY or EINTR the next call tries again, since the flag stays.
            let _ = self.ring.submit();
            taken += self.take_queued(most - taken, &mut each);
        }
        taken
    }

    fn take_queued(&mut self, most: usize, each: &mut impl FnMut(Completed)) -> usize {
        let mut taken = 0;
        for cqe in self.ring.completion().take(most) {
            let Some((tag, packet)) = self.slots.take(cqe.user_data()) else {
                self.unknown += 1;
                continue;
            };
            let result = u32::try_from(cqe.result()).map_err(|_| -cqe.result());
            each(Completed { tag, result, packet });
            taken += 1;
        }
        taken
    }

    /// Waits until nothing is under way, and drops it. False when the time is over.
    fn close(&mut self) -> bool {
        let until = Instant::now() + CLOSE_WITHIN;
        self.take_back(|_, packet| drop(packet));
        while self.under_way() > 0 {
            if Instant::now() > until {
                return false;
            }
            // Whatever the kernel says, what counts is what it completes.
            if self.submit().is_err() {
                self.take_back(|_, packet| drop(packet));
            }
            if self.complete(usize::MAX, drop) == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        true
    }
}

impl Drop for FileRing {
    fn drop(&mut self) {
        if !self.close() {
            self.slots.leave_to_kernel();
        }
    }
}

impl std::fmt::Debug for FileRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileRing").field("under_way", &self.under_way()).field("room", &self.room()).finish()
    }
}

/// The file keeps its length.
const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;

/// The packet's data behind the first `skip` bytes: address and length.
#[inline]
fn part(packet: Option<&Packet>, skip: u32) -> Option<(&Packet, u64, u32)> {
    let packet = packet?;
    let len = (packet.len() as u32).checked_sub(skip).filter(|len| *len > 0)?;
    Some((packet, packet.addr() + u64::from(skip), len))
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::EINTR | libc::ENOMEM))
}

/// With what the kernel has: 5.19 leaves this thread alone until it enters the kernel; what is
/// older interrupts it for each completion.
fn build(spec: &RingSpec) -> io::Result<IoUring> {
    let depth = spec.depth;
    let build = |newer: bool| {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_cqsize(depth.next_power_of_two());
        if newer {
            builder.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all();
        }
        builder.build(depth)
    };
    match build(true) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => build(false),
        built => built,
    }
}

/// One buffer has at most this many bytes (io_uring_register(2)).
const BUFFER_BYTES_MAX: usize = 1 << 30;

/// The most buffers of a ring, far below the kernel's own limit.
const BUFFERS_MAX: usize = 256;

/// Regions of pools as registered buffers, each cut into buffers of [`BUFFER_BYTES_MAX`].
#[derive(Debug, Default)]
struct Buffers {
    regions: Vec<Registered>,
    /// Alive as long as their memory is registered, so that no later mapping takes its addresses.
    _pools: Vec<Pool>,
}

#[derive(Clone, Copy, Debug)]
struct Registered {
    base: u64,
    len_bytes: u64,
    first_index: u16,
}

impl Buffers {
    /// Returns the buffers to register for these pools, and the table that finds a packet's. `None`
    /// for no pools, or too many.
    fn plan(pools: &[Pool]) -> Option<(Buffers, Vec<libc::iovec>)> {
        let (mut regions, mut vectors) = (Vec::with_capacity(pools.len()), Vec::new());
        for pool in pools {
            let (base, len) = (pool.region().as_ptr(), pool.region().len_bytes());
            let first_index = u16::try_from(vectors.len()).ok()?;
            regions.push(Registered { base: base.addr() as u64, len_bytes: len as u64, first_index });
            vectors.extend((0..len).step_by(BUFFER_BYTES_MAX).map(|offset| libc::iovec {
                iov_base: base.wrapping_add(offset).cast(),
                iov_len: (len - offset).min(BUFFER_BYTES_MAX),
            }));
        }
        let fits = !vectors.is_empty() && vectors.len() <= BUFFERS_MAX;
        fits.then(|| (Buffers { regions, _pools: pools.to_vec() }, vectors))
    }

    /// The number of the buffer that the packet's data lies in, whole.
    #[inline]
    fn index_of(&self, packet: &Packet) -> Option<u16> {
        let (addr, len) = packet.span();
        let region = self.regions.iter().find(|region| addr.wrapping_sub(region.base) < region.len_bytes)?;
        let (first, last) = (addr - region.base, addr - region.base + (len as u64).saturating_sub(1));
        let max = BUFFER_BYTES_MAX as u64;
        // From one buffer into the next: only where a pool has more than the kernel takes as one.
        (first / max == last / max).then_some(region.first_index + (first / max) as u16)
    }
}
