//! The packet: an 8-byte, move-only right to one buffer of a pool.
//!
//! ```text
//!  buffer   |<- headroom ->|<------ data: len ------>|<- tailroom ->|
//!                          addr()                    |
//!                          |<------------ capacity() -------------->|
//! ```
//! The buffer lies in device-visible memory; where data starts, its length, port, connection,
//! timestamp and mark lie in a 64-byte line outside it, so a device that writes the wrong bytes
//! cannot lead a packet astray. Dropping a packet returns it to the cache bound on this thread
//! ([`PoolCache::bind`](crate::PoolCache::bind)), else to its pool's free list. A packet that is
//! forgotten (`mem::forget`) stays out for good.

use std::fmt;
use std::slice;

use crate::cache_array;
use crate::connection::ConnectionId;
use crate::fresh_view::Fresh;
use crate::shared::{Meta, RawPacket, View};

/// The right to one buffer of a pool. See the [module](self) for its layout.
///
/// ```
/// use verbline_mem::{PageChoice, Pool, PoolSpec, PageSize, Region, RegionSpec};
///
/// let spec = PoolSpec { name: "orders".into(), packets: 8, data_bytes: 256, headroom_bytes: 64 };
/// let region = Region::map(&RegionSpec {
///     name: "orders".into(),
///     len_bytes: Pool::required_bytes(&spec),
///     pages: PageChoice::Exactly(PageSize::Small4K),
///     lock: false,
/// })?;
/// let cache = Pool::new(region, spec)?.cache(4);
///
/// let mut packet = cache.get().expect("8 packets are free");
/// assert!(packet.fill(b"new order"));
/// packet.prepend(2).expect("64 bytes of headroom").copy_from_slice(b"1:");
/// packet.append(1).expect("247 bytes of tailroom").copy_from_slice(b"!");
/// assert_eq!(packet.data(), b"1:new order!");
/// assert!(packet.trim_front(2));
/// assert_eq!((packet.headroom(), packet.len(), packet.capacity()), (64, 10, 256));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[repr(transparent)]
pub struct Packet(RawPacket);

/// The form of a pool's fresh packets ([`Packet::pool_form`]).
#[derive(Clone, Copy, Debug)]
pub struct PoolForm {
    fresh: Fresh,
    data_bytes: u32,
}

const _: () = assert!(size_of::<Packet>() == 8 && size_of::<Option<Packet>>() == 8);

// SAFETY: a packet is the only right to its line and buffer; whichever thread has it is the only
// one there. Its pool may be returned to from any thread.
unsafe impl Send for Packet {}
// SAFETY: `&Packet` only reads; every write needs `&mut Packet`.
unsafe impl Sync for Packet {}

impl Packet {
    /// # Safety
    /// The caller has the right to `raw` and gives it up to the packet.
    pub(crate) unsafe fn from_raw(raw: RawPacket) -> Self {
        Self(raw)
    }

    #[inline]
    fn meta(&self) -> &Meta {
        // SAFETY: the packet is the only right to its line, and the pool is not freed while it is
        // out.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn view(&self) -> &View {
        &self.meta().view
    }

    #[inline]
    pub(crate) fn view_mut(&mut self) -> &mut View {
        // SAFETY: as in `meta`, and `self` is borrowed mutably.
        unsafe { &mut self.0.as_mut().view }
    }

    /// The data, `len()` bytes. What nobody has written since the pool was made is zero; else it is
    /// what the last holder left.
    #[inline]
    #[must_use]
    pub fn data(&self) -> &[u8] {
        // SAFETY: `View` keeps data within the buffer, which is mapped and initialised; a device
        // that may write it holds the packet itself.
        unsafe { slice::from_raw_parts(self.at(self.view().start), self.len()) }
    }

    /// The data, to change.
    #[inline]
    #[must_use]
    pub fn data_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `data`, and `self` is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.at(self.view().start), self.len()) }
    }

    /// The bytes before the data, `headroom()` of them: what was trimmed off the front, or what a
    /// device put there, as on UD the GRH.
    #[inline]
    #[must_use]
    pub fn headroom_data(&self) -> &[u8] {
        // SAFETY: as in `data`; the buffer's start is where the headroom does.
        unsafe { slice::from_raw_parts(self.at(0), self.headroom()) }
    }

    /// Length of the data, bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.view().len as usize
    }

    /// There is no data.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes before the data.
    #[inline]
    #[must_use]
    pub fn headroom(&self) -> usize {
        self.view().start as usize
    }

    /// Bytes behind the data.
    #[inline]
    #[must_use]
    pub fn tailroom(&self) -> usize {
        self.capacity() - self.len()
    }

    /// The greatest length that the data can have from where it starts, bytes: `len() +
    /// tailroom()`. A fresh packet's is its pool's `data_bytes`.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        (self.view().buffer_bytes - self.view().start) as usize
    }

    /// Extends the data at its front and gives the `n` new bytes, or `None` (and no change) if the
    /// headroom is less.
    #[inline]
    #[must_use = "refused, the packet is as before"]
    pub fn prepend(&mut self, n: usize) -> Option<&mut [u8]> {
        if n > self.headroom() {
            return None;
        }
        let view = self.view_mut();
        view.start -= n as u32;
        view.len += n as u32;
        Some(&mut self.data_mut()[..n])
    }

    /// Extends the data at its end and gives the `n` new bytes, or `None` (and no change) if the
    /// tailroom is less.
    #[inline]
    #[must_use = "refused, the packet is as before"]
    pub fn append(&mut self, n: usize) -> Option<&mut [u8]> {
        if n > self.tailroom() {
            return None;
        }
        let old = self.len();
        self.view_mut().len += n as u32;
        Some(&mut self.data_mut()[old..])
    }

    /// Takes `n` bytes off the front, which become headroom. False, and no change, if there are
    /// fewer.
    #[inline]
    #[must_use = "refused, the packet is as before"]
    pub fn trim_front(&mut self, n: usize) -> bool {
        if n > self.len() {
            return false;
        }
        let view = self.view_mut();
        view.start += n as u32;
        view.len -= n as u32;
        true
    }

    /// Takes `n` bytes off the end, which become tailroom. False, and no change, if there are
    /// fewer.
    #[inline]
    #[must_use = "refused, the packet is as before"]
    pub fn trim_back(&mut self, n: usize) -> bool {
        if n > self.len() {
            return false;
        }
        self.view_mut().len -= n as u32;
        true
    }

    /// Sets the length. False, and no change, above `capacity()`. Bytes that come into view are
    /// what the buffer holds.
    #[inline]
    #[must_use = "refused, the packet is as before"]
    pub fn set_len(&mut self, n: usize) -> bool {
        let fits = n <= self.capacity();
        if fits {
            self.view_mut().len = n as u32;
        }
        fits
    }

    /// Makes the packet as it came from the pool: no data, the pool's headroom, port, timestamp and
    /// mark 0, no connection. The buffer's bytes stay.
    #[inline]
    pub fn reset(&mut self) {
        self.reset_view(0);
    }

    #[inline]
    fn reset_view(&mut self, len: u32) {
        let start = self.meta().headroom_bytes;
        let view = self.view_mut();
        *view = View { len, ..View::fresh(start, view.buffer_bytes - start) };
    }

    /// As `reset`, without reading the line first: `fresh` is of its pool.
    #[inline]
    pub(crate) fn renew(&mut self, fresh: Fresh) {
        fresh.write(self.view_mut());
    }

    /// Like `renew`, to `len` bytes, which a fresh packet of its pool can hold.
    #[inline]
    pub(crate) fn renew_to(&mut self, fresh: Fresh, len: u32) {
        self.renew(fresh);
        self.view_mut().len = len;
    }

    /// Replaces the data, from where it starts now. False, and no change, if `bytes` is longer than
    /// `capacity()`.
    #[inline]
    #[must_use = "refused, the packet is as before"]
    pub fn fill(&mut self, bytes: &[u8]) -> bool {
        let fits = self.set_len(bytes.len());
        if fits {
            self.data_mut().copy_from_slice(bytes);
        }
        fits
    }

    /// The address of the data, for a scatter/gather element. Its provenance is exposed.
    #[inline]
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.at(self.view().start).addr() as u64
    }

    /// Address and length of the data: [`Packet::addr`] and [`Packet::len`].
    #[inline]
    #[must_use]
    pub fn span(&self) -> (u64, usize) {
        (self.addr(), self.len())
    }

    /// Where its buffer starts: the headroom's first byte, if all before the data were headroom.
    /// Never changes.
    #[inline]
    #[must_use]
    pub fn buffer_addr(&self) -> u64 {
        self.at(0).addr() as u64
    }

    /// The headroom that it has after [`Packet::reset`], bytes: the same for all of a pool.
    #[inline]
    #[must_use]
    pub fn fresh_headroom(&self) -> usize {
        self.meta().headroom_bytes as usize
    }

    /// The capacity that it has after [`Packet::reset`], bytes: the same for all of a pool.
    #[inline]
    #[must_use]
    pub fn fresh_capacity(&self) -> usize {
        (self.view().buffer_bytes - self.meta().headroom_bytes) as usize
    }

    /// [`Packet::reset`] and [`Packet::set_len`]. False, and no change, above
    /// [`Packet::fresh_capacity`].
    #[inline]
    #[must_use = "refused, the packet is as before"]
    pub fn reset_to(&mut self, n: usize) -> bool {
        let fits = n <= self.fresh_capacity();
        if fits {
            self.reset_view(n as u32);
        }
        fits
    }

    /// Returns the form of the fresh packets of its pool.
    #[inline]
    #[must_use]
    pub fn pool_form(&self) -> PoolForm {
        let (headroom_bytes, data_bytes) = (self.meta().headroom_bytes, self.fresh_capacity() as u32);
        PoolForm { fresh: Fresh::new(View::fresh(headroom_bytes, data_bytes)), data_bytes }
    }

    /// Like [`Packet::reset_to`], with the shape of its pool's packets known beforehand.
    ///
    /// # Safety
    /// The form is of a packet of the same pool.
    #[inline]
    #[must_use = "refused, the packet is as before"]
    pub unsafe fn reset_by(&mut self, form: &PoolForm, n: usize) -> bool {
        let fits = n <= form.data_bytes as usize;
        if fits {
            self.renew_to(form.fresh, n as u32);
        }
        fits
    }

    /// Which pool it is of: a number, not 0, that no other pool of this process has, before or
    /// after.
    #[inline]
    #[must_use]
    pub fn pool_id(&self) -> u64 {
        self.meta().pool_id.into()
    }

    /// The lkey of the pool's MR (ibv_reg_mr(3)); 0 before
    /// [`Pool::attach_mr`](crate::Pool::attach_mr), with `pd_id()` 0 as well.
    #[inline]
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.pool().mr.get().map_or(0, |mr| mr.lkey)
    }

    /// The id of the protection domain that the pool is registered in; 0 when it is not.
    #[inline]
    #[must_use]
    pub fn pd_id(&self) -> u64 {
        self.pool().mr.get().map_or(0, |mr| mr.pd_id)
    }

    /// The port that the packet came in by or goes out by; what it means is the holder's.
    #[inline]
    #[must_use]
    pub fn port(&self) -> u16 {
        self.view().port
    }

    /// Sets [`Packet::port`].
    #[inline]
    pub fn set_port(&mut self, port: u16) {
        self.view_mut().port = port;
    }

    /// The connection that the packet came in by or goes out by, if its port has many.
    #[inline]
    #[must_use]
    pub fn connection(&self) -> Option<ConnectionId> {
        if self.view().has_connection == 0 { None } else { self.meta().connection }
    }

    /// Sets [`Packet::connection`], at which a port with one connection does not look.
    #[inline]
    pub fn set_connection(&mut self, connection: Option<ConnectionId>) {
        // SAFETY: the packet is the only right to its line, as in `meta`, and `self` is borrowed
        // mutably.
        let meta = unsafe { self.0.as_mut() };
        meta.connection = connection;
        meta.view.has_connection = connection.is_some().into();
    }

    /// When the packet came in; the unit is the setter's.
    #[inline]
    #[must_use]
    pub fn timestamp(&self) -> u64 {
        self.view().timestamp
    }

    /// Sets [`Packet::timestamp`].
    #[inline]
    pub fn set_timestamp(&mut self, timestamp: u64) {
        self.view_mut().timestamp = timestamp;
    }

    /// A word for the stages' own use.
    #[inline]
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.view().mark
    }

    /// Sets [`Packet::mark`].
    #[inline]
    pub fn set_mark(&mut self, mark: u64) {
        self.view_mut().mark = mark;
    }

    /// The name of its pool.
    #[must_use]
    pub fn pool_name(&self) -> &str {
        &self.pool().name
    }

    #[inline]
    fn pool(&self) -> &crate::shared::Shared {
        // SAFETY: a pool is not freed while one of its packets is out.
        unsafe { self.meta().pool.as_ref() }
    }

    #[inline]
    fn at(&self, offset: u32) -> *mut u8 {
        // SAFETY: `View` keeps offsets within the buffer.
        unsafe { self.meta().buffer.as_ptr().add(offset as usize) }
    }

    #[inline]
    pub(crate) fn raw(&self) -> RawPacket {
        self.0
    }
}

impl Drop for Packet {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the packet is the right, and it ends here.
        unsafe { cache_array::give_back_one(self.0) };
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("pool", &self.pool_name())
            .field("len", &self.len())
            .field("headroom", &self.headroom())
            .field("tailroom", &self.tailroom())
            .field("port", &self.port())
            .finish_non_exhaustive()
    }
}
