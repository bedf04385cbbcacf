//! The array of handles behind a `PoolCache`, and the list of those bound to this thread.
//!
//! The array is a stack: what was returned last, and is warm in this core's caches, goes out first.
//! A full stash gives its cold end to the free list, and an empty one refills from there, each in
//! one compare-and-swap that leaves the stash half full. Moving a batch in or out is a copy between
//! arrays; no metadata line is touched.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::slice;

use crate::freelist::Want;
use crate::fresh_view::Fresh;
use crate::handles::Handles;
use crate::shared::{RawPacket, Shared};
use crate::sync::{AtomicU32, Ordering};

/// Eight slots on a cache line of their own: full batches then move line by line. Where malloc puts
/// an array, every other vector crossed lines: 0.30 ns a packet, got and put, not 0.24 (Zen 4).
#[repr(C, align(64))]
struct Line([UnsafeCell<MaybeUninit<RawPacket>>; 8]);

const _: () = assert!(size_of::<Line>() == 64);

impl Line {
    fn new() -> Self {
        Self([const { UnsafeCell::new(MaybeUninit::uninit()) }; 8])
    }
}

/// Not `Sync`: one thread at a time, which owns every slot below `len`. `len` alone is read by
/// others, to count. On lines of its own, as `len` is written at every get and put, and lcores'
/// caches are made one after another: 128 bytes, as x86 prefetches lines in pairs.
#[repr(align(128))]
pub(crate) struct Stash {
    /// Slots in use. Atomic for `account`'s sake: the owner's loads and stores are plain moves.
    len: AtomicU32,
    capacity: u32,
    slots: Box<[Line]>,
    /// Copies of `shared.lines`' own, so that the hot path stays in this struct.
    base: usize,
    mask: usize,
    fresh: Fresh,
    /// Room for data in a fresh packet, bytes.
    data_bytes: u32,
    handles: Handles,
    shared: NonNull<Shared>,
    next_bound: Cell<*const Stash>,
}

impl Stash {
    /// # Safety
    /// `shared` outlives the stash: the owner of the stash holds the pool.
    pub(crate) unsafe fn new(shared: NonNull<Shared>, capacity: u32) -> Self {
        // SAFETY: the pool is alive: the owner of the stash holds it, as this function asks.
        let pool = unsafe { shared.as_ref() };
        Self {
            len: AtomicU32::new(0),
            capacity,
            slots: (0..(capacity as usize).div_ceil(8)).map(|_| Line::new()).collect(),
            base: pool.lines.base_addr(),
            mask: pool.lines.mask(),
            fresh: Fresh::new(pool.fresh),
            data_bytes: pool.fresh.buffer_bytes - pool.fresh.start,
            handles: Handles::new(),
            shared,
            next_bound: Cell::new(ptr::null()),
        }
    }

    pub(crate) fn count(&self) -> NonNull<AtomicU32> {
        NonNull::from(&self.len)
    }

    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.capacity as usize
    }

    #[inline]
    pub(crate) fn fresh(&self) -> Fresh {
        self.fresh
    }

    /// Whether a fresh packet can hold this many bytes.
    #[inline]
    pub(crate) fn holds(&self, len_bytes: usize) -> bool {
        len_bytes <= self.data_bytes as usize
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        // Relaxed: only this thread stores it.
        self.len.load(Ordering::Relaxed) as usize
    }

    #[inline]
    fn set_len(&self, len: usize) {
        debug_assert!(len <= self.capacity());
        // Relaxed: `account` reads a count and nothing that hangs on it.
        self.len.store(len as u32, Ordering::Relaxed);
    }

    /// The slots, as the array of handles that they are.
    #[inline]
    fn slots(&self) -> *mut RawPacket {
        // Lines are arrays without padding; UnsafeCell and MaybeUninit are both transparent.
        self.slots.as_ptr().cast_mut().cast()
    }

    fn pool(&self) -> &Shared {
        // SAFETY: alive as long as the stash (`new`).
        unsafe { self.shared.as_ref() }
    }

    /// Whether the packet is of this stash's pool.
    #[inline]
    pub(crate) fn owns(&self, packet: RawPacket) -> bool {
        packet.addr().get() & self.mask == self.base
    }

    /// The right to one packet, if there is one.
    #[inline]
    pub(crate) fn take_one(&self) -> Option<RawPacket> {
        let Some(rest) = self.len().checked_sub(1) else { return self.take_one_refilled() };
        self.set_len(rest);
        // SAFETY: was below `len`, so a handle that this thread owned; lowering `len` has passed
        // the right on.
        Some(unsafe { self.slots().add(rest).read() })
    }

    #[cold]
    fn take_one_refilled(&self) -> Option<RawPacket> {
        let mut slot = [MaybeUninit::uninit()];
        // SAFETY: if one was taken, the slot is written.
        (self.take_refilled(&mut slot) == 1).then(|| unsafe { slot[0].assume_init() })
    }

    /// Takes the packet over if it is of this pool.
    ///
    /// # Safety
    /// As for `put`.
    #[inline]
    pub(crate) unsafe fn put_one(&self, packet: RawPacket) -> bool {
        // SAFETY: the right to the packet passes on to the free list, as `put` asks.
        self.owns(packet) && (self.push(packet) || unsafe { self.put_spilled(slice::from_ref(&packet)) })
    }

    /// Puts a handle on top, if there is room: the right goes with it.
    #[inline]
    fn push(&self, packet: RawPacket) -> bool {
        let len = self.len();
        let room = len < self.capacity();
        if room {
            // SAFETY: a slot above `len` is nobody's, and there is one.
            unsafe { self.slots().add(len).write(packet) };
            self.set_len(len + 1);
        }
        room
    }

    /// Fills `out` from its front with the right to as many packets as there are, and gives how
    /// many.
    #[inline]
    pub(crate) fn take(&self, out: &mut [MaybeUninit<RawPacket>]) -> usize {
        let len = self.len();
        match out {
            // A lone packet, without the copying of arrays.
            [slot] if len > 0 => {
                // SAFETY: below `len`, so a handle that this thread owns; lowering `len` passes the
                // right on.
                slot.write(unsafe { self.slots().add(len - 1).read() });
                self.set_len(len - 1);
                1
            }
            _ if out.len() > len => self.take_refilled(out),
            _ => {
                self.copy_top(len, out);
                out.len()
            }
        }
    }

    /// Moves the top `out.len()` of the `len` slots out.
    #[inline]
    fn copy_top(&self, len: usize, out: &mut [MaybeUninit<RawPacket>]) {
        let rest = len - out.len();
        // SAFETY: slots below `len` hold handles and this thread owns them; `out` is foreign to
        // them, being borrowed mutably. Lowering `len` passes the rights on.
        unsafe { self.handles.copy(self.slots().add(rest), out.as_mut_ptr().cast(), out.len()) };
        self.set_len(rest);
    }

    #[cold]
    fn take_refilled(&self, out: &mut [MaybeUninit<RawPacket>]) -> usize {
        if out.len() <= self.capacity() {
            self.refill(out.len());
            let taken = out.len().min(self.len());
            self.copy_top(self.len(), &mut out[..taken]);
            return taken;
        }
        let (own, rest) = out.split_at_mut(self.len());
        self.copy_top(own.len(), own);
        let pool = self.pool();
        own.len() + pool.free.take(Want::exactly(rest.len()), |k, index| _ = rest[k].write(pool.handle_at(index)))
    }

    /// Gets enough for a take of `want` that leaves the stash half full, if the free list has it.
    fn refill(&self, want: usize) {
        let len = self.len();
        let goal = (want + self.capacity() / 2).min(self.capacity());
        let pool = self.pool();
        let want = Want { least: want.saturating_sub(len), most: goal.saturating_sub(len) };
        let got = pool.free.take(want, |k, index| {
            // SAFETY: `len + k` is below `goal`, so within the slots, and above `len`, so free.
            // Read only once `len` covers it.
            unsafe { self.slots().add(len + k).write(pool.handle_soon_at(index)) };
        });
        self.set_len(len + got);
    }

    /// Takes the packets over if all are of this pool; else none.
    ///
    /// # Safety
    /// The caller has the right to each packet, and has given it up when this returns true.
    #[inline]
    #[must_use = "what is not taken over is still the caller's"]
    pub(crate) unsafe fn put(&self, packets: &[RawPacket]) -> bool {
        let len = self.len();
        if packets.len() > self.capacity() - len {
            // SAFETY: the right to each packet passes on to the free list, as this method asks.
            return unsafe { self.put_spilled(packets) };
        }
        if let &[packet] = packets {
            return self.owns(packet) && self.push(packet);
        }
        // SAFETY: there is room for all above `len`.
        let slot = unsafe { self.slots().add(len) };
        // SAFETY: readable as a slice, writable as found; a stash's slots are nobody else's. What
        // lies above `len` is nobody's, so it may be written and given up.
        let differing = unsafe { self.handles.copy_and_compare(packets.as_ptr(), slot, packets.len(), self.base) };
        if differing & self.mask != 0 {
            return false;
        }
        self.set_len(len + packets.len());
        true
    }

    /// # Safety
    /// As for `put`.
    #[cold]
    unsafe fn put_spilled(&self, packets: &[RawPacket]) -> bool {
        if !packets.iter().all(|&packet| self.owns(packet)) {
            return false;
        }
        if packets.len() > self.capacity() {
            // SAFETY: ours, and the right is the caller's to give.
            unsafe { Shared::put(self.shared, packets) };
            return true;
        }
        self.spill((self.capacity() / 2).saturating_sub(packets.len()));
        // SAFETY: the caller's word. The spill has left room for them.
        unsafe { self.put(packets) }
    }

    /// Gives the cold end to the free list until `keep` are left.
    pub(crate) fn spill(&self, keep: usize) {
        let len = self.len();
        let leave = len.saturating_sub(keep);
        // SAFETY: slots below `len` hold handles that this thread owns, and nothing writes them
        // during the put.
        let cold = unsafe { slice::from_raw_parts(self.slots(), leave) };
        // SAFETY: a stash holds packets of its own pool only, and owns them; they are given up
        // here.
        unsafe { Shared::put(self.shared, cold) };
        // SAFETY: both ranges are within the slots; the rights move down with the handles.
        unsafe { ptr::copy(self.slots().add(leave), self.slots(), len - leave) };
        self.set_len(len - leave);
    }
}

#[cfg(not(loom))]
thread_local! {
    /// The first of this thread's bound stashes. Plain memory without a destructor: there for
    /// whatever drops last.
    static BOUND: Cell<*const Stash> = const { Cell::new(ptr::null()) };
}
#[cfg(loom)]
loom::thread_local! {
    static BOUND: Cell<*const Stash> = Cell::new(ptr::null());
}

/// Binds the stash to this thread, before those already bound.
///
/// # Safety
/// Until `unbind`, the stash stays at its address, alive, and with this thread.
pub(crate) unsafe fn bind(stash: &Stash) {
    BOUND.with(|first| stash.next_bound.set(first.replace(stash)));
}

/// Takes it off this thread's list.
pub(crate) fn unbind(stash: &Stash) {
    BOUND.with(|first| {
        let mut link: &Cell<*const Stash> = first;
        while !ptr::eq(link.get(), stash) {
            // SAFETY: what is on the list is alive and this thread's (`bind`).
            let Some(next) = (unsafe { link.get().as_ref() }) else { return };
            link = &next.next_bound;
        }
        link.set(stash.next_bound.replace(ptr::null()));
    });
}

/// This thread's stash for the packet's pool, if one is bound.
#[inline]
fn bound_for<'a>(packet: RawPacket) -> Option<&'a Stash> {
    let mut at = BOUND.with(Cell::get);
    // SAFETY: what is on the list is alive and this thread's (`bind`). The lifetime is the
    // caller's, which unbinds nothing while it uses it.
    while let Some(stash) = unsafe { at.as_ref() } {
        if stash.owns(packet) {
            return Some(stash);
        }
        at = stash.next_bound.get();
    }
    None
}

/// Returns a packet: to the stash bound on this thread for its pool, else to the pool's free list.
///
/// # Safety
/// The caller has the right to the packet and gives it up.
pub(crate) unsafe fn give_back_one(packet: RawPacket) {
    if bound_for(packet).is_some_and(|stash| stash.push(packet)) {
        return;
    }
    // SAFETY: the right to the packet passes on; no stash took it.
    unsafe { give_back_in_runs(slice::from_ref(&packet)) }
}

/// Returns packets of any pools: each run of one pool's to the stash bound on this thread, else to
/// that pool's free list in one swap.
///
/// # Safety
/// The caller has the right to each packet and gives it up.
#[inline]
pub(crate) unsafe fn give_back(packets: &[RawPacket]) {
    let Some(&first) = packets.first() else { return };
    // SAFETY: the caller's word; if refused, nothing was given up.
    if !bound_for(first).is_some_and(|stash| unsafe { stash.put(packets) }) {
        // SAFETY: the stash refused them, so their rights are still ours to pass on.
        unsafe { give_back_in_runs(packets) };
    }
}

/// # Safety
/// As for `give_back`.
#[cold]
unsafe fn give_back_in_runs(mut packets: &[RawPacket]) {
    while let Some(&first) = packets.first() {
        let run = match bound_for(first) {
            Some(stash) => {
                let run = run_of(packets, |packet| stash.owns(packet));
                // SAFETY: the caller's word, and all of the run are the stash's.
                let taken = unsafe { stash.put(&packets[..run]) };
                debug_assert!(taken, "a stash takes its own");
                run
            }
            // SAFETY: the right to each packet is ours, by this function's contract, and passes on.
            None => unsafe { put_run_home(packets) },
        };
        packets = &packets[run..];
    }
}

/// Puts the first run of one pool's packets on its free list; gives how many.
///
/// # Safety
/// As for `give_back`; `packets` is not empty.
unsafe fn put_run_home(packets: &[RawPacket]) -> usize {
    // SAFETY: the caller has the right to the packet, so its line is readable and its pool alive.
    let shared = unsafe { packets[0].as_ref() }.pool;
    // SAFETY: as above; the reference ends before the put.
    let run = run_of(packets, |packet| unsafe { shared.as_ref() }.lines.owns(packet));
    // SAFETY: all of the run are of this pool; right and surrender are the caller's word. Nothing
    // of the pool is touched afterwards.
    unsafe { Shared::put(shared, &packets[..run]) };
    run
}

fn run_of(packets: &[RawPacket], owned: impl Fn(RawPacket) -> bool) -> usize {
    packets.iter().position(|&packet| !owned(packet)).unwrap_or(packets.len())
}
