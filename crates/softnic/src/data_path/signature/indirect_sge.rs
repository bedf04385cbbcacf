//! The two ends of a transfer with memory behind indirect keys, and the copy between them.
//!
//! Guarantees, like `sge_list`: every byte that is read or written lies in a range that its
//! region's key granted just before, for the life of the [`Pinned`]. All keys are looked up before
//! the first byte moves. A long transfer names the objects found then as held, and uses no others
//! meanwhile.

use crate::copy::copy;
use crate::data_path::sge_list::{LONG_BYTES, Sources};
use crate::key_table::{self, Denied};
use crate::objects::device::SGE_MAX;
use crate::objects::guards::{Held, Pinned};
use crate::objects::qp::Qp;
use crate::queues::wr::sge_bytes;
use crate::signature::converter::{Converter, Stages};
use crate::signature::flow::Flow;
use crate::signature::layout::{Cursor, Layout};
use crate::signature::mkey::{self, InUse, Mkey};
use rdma_sys::ibv_sge;
use std::mem::MaybeUninit;

/// One end: memory to read from, or to write to if `WRITABLE`. Filled in place: it has two
/// kilobytes.
pub(crate) struct End<'p, const WRITABLE: bool> {
    spans: [MaybeUninit<Span<'p>>; SGE_MAX as usize],
    count: usize,
    wire_bytes: u64,
    /// The keys of this end, and the regions that they led to; unknown for pieces that others have
    /// found.
    held: Option<Held>,
    pinned: Pinned<'p>,
}

/// The end to read from.
pub(crate) type From<'p> = End<'p, false>;
/// The end to write to.
pub(crate) type To<'p> = End<'p, true>;

/// A part of an end.
enum Span<'p> {
    Memory { at: *mut u8, bytes: u64 },
    Key(Through<'p>),
}

/// A range of an indirect key.
struct Through<'p> {
    used: InUse<'p>,
    /// The start of the data, counted without protection information.
    data_offset: u64,
    /// The start and the number of its bytes in the layout.
    memory_offset: u64,
    memory_bytes: u64,
    wire_bytes: u64,
}

impl<'p, const WRITABLE: bool> End<'p, WRITABLE> {
    const LOCAL: u32 = if WRITABLE { key_table::LOCAL_WRITE } else { 0 };
    const REMOTE: u32 = if WRITABLE { key_table::REMOTE_WRITE } else { key_table::REMOTE_READ };

    #[inline(always)]
    pub(crate) fn new(pinned: Pinned<'p>) -> Self {
        let held = Some(Held::default());
        End { spans: [const { MaybeUninit::uninit() }; _], count: 0, wire_bytes: 0, held, pinned }
    }

    fn spans(&self) -> &[Span<'p>] {
        // SAFETY: `push` has written the first `count` elements.
        unsafe { std::slice::from_raw_parts(self.spans.as_ptr().cast(), self.count) }
    }

    /// Adds a key to those that the end was found by.
    fn hold(&mut self, key: u32) {
        self.held = self.held.map(|held| held.key(key));
    }

    /// Bytes on the wire.
    pub(crate) fn wire_bytes(&self) -> u64 {
        self.wire_bytes
    }

    fn push(&mut self, span: Span<'p>) -> Result<(), Denied> {
        let bytes = match &span {
            Span::Memory { bytes, .. } => *bytes,
            Span::Key(through) => through.wire_bytes,
        };
        self.spans.get_mut(self.count).ok_or(Denied)?.write(span);
        self.count += 1;
        self.wire_bytes += bytes;
        Ok(())
    }

    /// Adds an element of a work request's list, or as much of it as `most` bytes on the wire fill.
    pub(crate) fn add_local(&mut self, pd: u32, sge: &ibv_sge, most: u64) -> Result<(), Denied> {
        let bytes = sge_bytes(sge);
        if let Some(mkey) = mkey::lookup(self.pinned, sge.lkey) {
            let used = enter(mkey, pd, Self::LOCAL)?;
            let whole = match &used.config.signature {
                None => bytes,
                Some(signature) => signature.wire_bytes(bytes).ok_or(Denied)?,
            };
            return self.add_key(used, sge.addr, whole.min(most), Self::LOCAL);
        }
        let bytes = bytes.min(most);
        let at = key_table::check_local(pd, sge.lkey, sge.addr, bytes, Self::LOCAL)?;
        self.hold(sge.lkey);
        self.push(Span::Memory { at, bytes })
    }

    /// Adds a range of the peer's, by wire addresses.
    pub(crate) fn add_remote(&mut self, peer: &Qp, rkey: u32, addr: u64, bytes: u64) -> Result<(), Denied> {
        if bytes == 0 {
            return Ok(());
        }
        if let Some(mkey) = mkey::lookup(self.pinned, rkey) {
            let used = enter(mkey, peer.pd, Self::REMOTE)?;
            let offset = match &used.config.signature {
                None => addr,
                Some(signature) => signature.data_bytes(addr).ok_or(Denied)?,
            };
            return self.add_key(used, offset, bytes, Self::LOCAL);
        }
        let (at, region) = key_table::check_remote(peer.pd, peer.qpn, rkey, addr, bytes, Self::REMOTE)?;
        self.hold(region);
        self.push(Span::Memory { at, bytes })
    }

    /// Adds `wire_bytes` of a key from `data_offset` on, if all parts of its layout grant `need`.
    fn add_key(&mut self, used: InUse<'p>, data_offset: u64, wire_bytes: u64, need: u32) -> Result<(), Denied> {
        let (memory_offset, memory_bytes) = match &used.config.signature {
            None => (data_offset, wire_bytes),
            Some(signature) => {
                let data_bytes = signature.data_bytes(wire_bytes).ok_or(Denied)?;
                let offset = signature.memory_bytes(data_offset).ok_or(Denied)?;
                (offset, signature.memory_bytes(data_bytes).ok_or(Denied)?)
            }
        };
        let layout = &used.config.layout;
        let end = memory_offset.checked_add(memory_bytes).ok_or(Denied)?;
        if end > layout.bytes() {
            return Err(Denied);
        }
        let mut each = Walk::new(layout, used.key.pd, need, memory_offset, memory_bytes);
        self.hold(used.key.number());
        while let Some(piece) = each.next()? {
            self.hold(piece.lkey);
        }
        self.push(Span::Key(Through { used, data_offset, memory_offset, memory_bytes, wire_bytes }))
    }
}

impl<const WRITABLE: bool> Drop for End<'_, WRITABLE> {
    fn drop(&mut self) {
        for span in &mut self.spans[..self.count] {
            // SAFETY: `push` has written the first `count` elements, and nobody uses them after
            // this.
            unsafe { span.assume_init_drop() };
        }
    }
}

impl<'p> From<'p> {
    /// Adds pieces that were checked already; their keys are in `held`, if it is known.
    pub(crate) fn add_pieces(&mut self, sources: &Sources<'p>, held: Option<Held>) -> Result<(), Denied> {
        self.held = self.held.zip(held).map(|(others, these)| others.and(these));
        sources.as_slice().iter().try_for_each(|&(at, len)| self.push(Span::Memory { at, bytes: len as u64 }))
    }
}

fn enter(mkey: &Mkey, pd: u32, need: u32) -> Result<InUse<'_>, Denied> {
    if mkey.pd != pd {
        return Err(Denied);
    }
    mkey.in_use(need).map_err(|_| Denied)
}

/// A piece of memory that its region's key granted just now.
struct Granted {
    at: *mut u8,
    bytes: usize,
    lkey: u32,
}

/// The pieces of a range of a layout, at the addresses of the host.
struct Walk<'a> {
    layout: &'a Layout,
    cursor: Cursor,
    left: u64,
    pd: u32,
    need: u32,
}

impl<'a> Walk<'a> {
    fn new(layout: &'a Layout, pd: u32, need: u32, offset: u64, bytes: u64) -> Walk<'a> {
        Walk { layout, cursor: layout.at(offset), left: bytes, pd, need }
    }

    /// The next piece.
    fn next(&mut self) -> Result<Option<Granted>, Denied> {
        let left = self.left;
        self.next_of(left)
    }

    /// The next piece, of at most `most` bytes.
    fn next_of(&mut self, most: u64) -> Result<Option<Granted>, Denied> {
        let most = most.min(self.left);
        if most == 0 {
            return Ok(None);
        }
        let piece = self.layout.next(&mut self.cursor, most).ok_or(Denied)?;
        self.left -= piece.bytes;
        let at = key_table::check_local(self.pd, piece.lkey, piece.addr, piece.bytes, self.need)?;
        Ok(Some(Granted { at, bytes: piece.bytes as usize, lkey: piece.lkey }))
    }
}

/// Called when a key found a fault: with the key, and whether it is of the written end.
pub(crate) type Found<'a> = &'a mut dyn FnMut(&Mkey, bool);

/// Moves the bytes of one end to the other, which has room for them. `Denied` if a region went away
/// meanwhile. During a long transfer, only threads that destroy an object in use wait for it.
///
/// # Safety
/// All other objects that this thread has found, and uses in `found` or later, are in `ends`.
pub(crate) unsafe fn transfer(ends: Held, to: &To<'_>, from: &From<'_>, found: Found<'_>) -> Result<(), Denied> {
    match (to.held, from.held) {
        (Some(target), Some(source)) if from.wire_bytes >= LONG_BYTES => {
            let held = ends.and(target).and(source);
            // SAFETY: the caller guarantees `ends`; both ends have every key that they were found
            // by, and their walks look up no others.
            unsafe { to.pinned.hold(held, || move_bytes(to, from, found)) }
        }
        _ => move_bytes(to, from, found),
    }
}

fn move_bytes(to: &To<'_>, from: &From<'_>, found: Found<'_>) -> Result<(), Denied> {
    let (mut read, mut written) = (Stages::new(), Stages::new());
    let mut writer = Writer::new(to, &mut written);
    for span in from.spans() {
        match span {
            Span::Memory { at, bytes } => writer.take(*at, *bytes as usize),
            Span::Key(through) => through.read(&mut read, &mut writer, found)?,
        }
        if writer.denied {
            return Err(Denied);
        }
    }
    // A complete span is closed, and its fault noted, when the next begins; the last one is closed
    // here.
    writer.close();
    let faulty = writer.faulty;
    for (at, span) in to.spans().iter().enumerate() {
        if let Span::Key(through) = span
            && faulty >> at & 1 == 1
        {
            found(through.used.key, true);
        }
    }
    Ok(())
}

impl Through<'_> {
    fn walk(&self, need: u32) -> Walk<'_> {
        Walk::new(&self.used.config.layout, self.used.key.pd, need, self.memory_offset, self.memory_bytes)
    }

    /// Passes the bytes in memory to the writer, in the form of the wire.
    fn read(&self, stages: &mut Stages, writer: &mut Writer<'_, '_>, found: Found<'_>) -> Result<(), Denied> {
        let mut walk = self.walk(0);
        let Some(signature) = &self.used.config.signature else {
            while let Some(Granted { at, bytes, .. }) = walk.next()? {
                writer.take(at, bytes);
            }
            return Ok(());
        };
        stages.clear();
        let mut converter = Converter::new(Flow::to_wire(signature), self.data_offset);
        while let Some(Granted { at, bytes, .. }) = walk.next()? {
            let mut sink = |bytes: &[u8]| writer.take(bytes.as_ptr(), bytes.len());
            // SAFETY: the region's key granted the bytes just now.
            unsafe { converter.feed(stages, at, bytes, &mut sink) };
        }
        if let Some((fault, offset)) = converter.fault()
            && self.used.key.found(&self.used.config, fault, offset)
        {
            found(self.used.key, false);
        }
        Ok(())
    }
}

/// Writes the bytes from the wire to their places at the written end.
struct Writer<'a, 'p> {
    to: &'a To<'p>,
    stages: &'a mut Stages,
    /// The span behind the current one.
    next: usize,
    state: Writing<'a>,
    /// Bytes on the wire that the current span still takes.
    left: u64,
    denied: bool,
    /// Spans whose keys found their first fault: a bit each.
    faulty: u64,
}

const _: () = assert!(SGE_MAX <= 64);

enum Writing<'a> {
    Memory(*mut u8),
    Bytes(Walk<'a>),
    Blocks(Walk<'a>, Converter),
}

impl<'a, 'p> Writer<'a, 'p> {
    fn new(to: &'a To<'p>, stages: &'a mut Stages) -> Writer<'a, 'p> {
        let state = Writing::Memory(std::ptr::null_mut());
        Writer { to, stages, next: 0, state, left: 0, denied: false, faulty: 0 }
    }

    /// Takes `bytes` at `from`, which the region's key granted just now, or which are our own.
    fn take(&mut self, mut from: *const u8, mut bytes: usize) {
        while bytes > 0 && !self.denied {
            if self.left == 0 && !self.open() {
                // There is room for all: the ends were built so.
                return;
            }
            let step = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes);
            self.write(from, step);
            self.left -= step as u64;
            bytes -= step;
            from = from.wrapping_add(step);
        }
    }

    /// Goes on to the next span. Returns false if there is none.
    fn open(&mut self) -> bool {
        self.close();
        let Some(span) = self.to.spans().get(self.next) else { return false };
        self.next += 1;
        (self.state, self.left) = match span {
            Span::Memory { at, bytes } => (Writing::Memory(*at), *bytes),
            Span::Key(through) => {
                let walk = through.walk(key_table::LOCAL_WRITE);
                let state = match &through.used.config.signature {
                    None => Writing::Bytes(walk),
                    Some(signature) => {
                        self.stages.clear();
                        Writing::Blocks(walk, Converter::new(Flow::to_memory(signature), through.data_offset))
                    }
                };
                (state, through.wire_bytes)
            }
        };
        true
    }

    /// Ends the current span, and notes its fault.
    fn close(&mut self) {
        let Writing::Blocks(_, converter) = &self.state else { return };
        let at = self.next - 1;
        if let (Some((fault, offset)), Some(Span::Key(through))) = (converter.fault(), self.to.spans().get(at))
            && through.used.key.found(&through.used.config, fault, offset)
        {
            self.faulty |= 1 << at;
        }
        self.state = Writing::Memory(std::ptr::null_mut());
    }

    /// Writes `bytes` at `from` to the current position of the span.
    fn write(&mut self, from: *const u8, bytes: usize) {
        match &mut self.state {
            Writing::Memory(at) => {
                // SAFETY: the bytes at `from` are granted or our own, and at least as many are left
                // in a granted span.
                unsafe { copy(*at, from, bytes) };
                *at = at.wrapping_add(bytes);
            }
            Writing::Bytes(walk) => self.denied |= scatter(walk, from, bytes).is_err(),
            Writing::Blocks(walk, converter) => {
                let denied = &mut self.denied;
                let mut sink = |block: &[u8]| *denied |= scatter(walk, block.as_ptr(), block.len()).is_err();
                // SAFETY: the bytes can be read, as `take` requires.
                unsafe { converter.feed(self.stages, from, bytes, &mut sink) };
            }
        }
    }
}

/// Copies `bytes` at `from`, which can be read, to the current position of the walk.
fn scatter(walk: &mut Walk<'_>, mut from: *const u8, bytes: usize) -> Result<(), Denied> {
    let mut left = bytes as u64;
    while left > 0 {
        let Some(Granted { at, bytes: step, .. }) = walk.next_of(left)? else { return Err(Denied) };
        // SAFETY: the region's key granted the target just now, for writing; the bytes can be read.
        unsafe { copy(at, from, step) };
        from = from.wrapping_add(step);
        left -= step as u64;
    }
    Ok(())
}
