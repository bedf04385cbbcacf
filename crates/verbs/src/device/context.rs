//! An opened device: its capabilities, its ports, and the objects created from it.
//!
//! A `Context` is shared: every object created from it keeps it open, so that nothing outlives it.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rdma_sys::{ibv_context, ibv_device_attr_ex, ibv_gid, ibv_port_attr};

use crate::device::attr::{DeviceAttr, GidEntry, GidKind, PortAttr};
use crate::device::capability::{Capability, Lacking};
use crate::device::extended::extended;
use crate::device::gid::Gid;
use crate::device::offload::Offload;
use crate::device::provider::{Provider, verb};
use crate::errno::{Errno, VerbError};

/// An opened device. Cloning it is cheap and shares it.
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) inner: Arc<ContextInner>,
}

impl Context {
    /// # Safety
    /// `raw` was opened by `provider` and nobody else closes it.
    pub(crate) unsafe fn from_raw(
        provider: Provider,
        raw: NonNull<ibv_context>,
        name: String,
    ) -> Result<Context, VerbError> {
        let gone = AtomicBool::new(false);
        let inner = Arc::new(ContextInner { provider, raw, name, gone, offload: OnceLock::new() });
        set_nonblocking(inner.async_fd()).map_err(|errno| VerbError::new("fcntl(O_NONBLOCK)", &inner.name, errno))?;
        Ok(Context { inner })
    }

    /// The device's name in the kernel or the software RNIC, e.g. `mlx5_0`.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The provider of the device.
    pub(crate) fn provider(&self) -> Provider {
        self.inner.provider
    }

    /// The device's capabilities and limits (ibv_query_device_ex(3)). If the driver is too old for
    /// that, ibv_query_device(3) answers, and attributes that only the former reports count as
    /// absent.
    pub fn query_device(&self) -> Result<DeviceAttr, VerbError> {
        // SAFETY: ibv_device_attr_ex is integers only: all zeros is a valid value.
        let mut attr: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
        let raw = self.inner.as_ptr();
        // SAFETY: the context is open.
        if let Some(query) = unsafe { extended!(raw, query_device_ex) } {
            // SAFETY: as above; `attr` may be written by the call, as far as its size says.
            let ret = unsafe { query(raw, std::ptr::null(), &raw mut attr, size_of_val(&attr)) };
            // Not implemented by this driver: verbs.h falls back to the old call in this case, too.
            if !Errno::of_return(ret).is_some_and(|errno| matches!(errno.raw(), libc::EOPNOTSUPP | libc::ENOSYS)) {
                VerbError::check("ibv_query_device_ex", ret, || self.name())?;
                return Ok(DeviceAttr::from_raw(&attr));
            }
        }
        // SAFETY: the context is open, and the call writes to `attr` alone.
        let ret = unsafe { verb!(self.inner.provider, ibv_query_device(raw, &raw mut attr.orig_attr)) };
        VerbError::check("ibv_query_device", ret, || self.name())?;
        Ok(DeviceAttr::from_raw(&attr))
    }

    /// The state and the limits of a port; ports count from 1 (ibv_query_port(3)).
    pub fn query_port(&self, port: u8) -> Result<PortAttr, VerbError> {
        // SAFETY: ibv_port_attr is integers only. Zeroed first: a driver fills the fields it knows.
        let mut attr: ibv_port_attr = unsafe { std::mem::zeroed() };
        let raw = self.inner.as_ptr();
        // SAFETY: the context is open; `attr` may be written by the call. rdma-sys keeps the
        // header's name for the inline function that picks the right version of the exported one.
        let ret = unsafe {
            match self.inner.provider {
                Provider::Kernel => rdma_sys::___ibv_query_port(raw, port, &raw mut attr),
                Provider::Soft => verbline_softnic::provider::ibv_query_port(raw, port, &raw mut attr),
            }
        };
        VerbError::check("ibv_query_port", ret, || format!("{} port {port}", self.name()))?;
        Ok(PortAttr::from_raw(&attr))
    }

    /// An entry of a port's GID table (ibv_query_gid(3)).
    pub fn query_gid(&self, port: u8, index: u8) -> Result<Gid, VerbError> {
        let mut gid = ibv_gid { raw: [0; 16] };
        // SAFETY: the context is open; `gid` may be written by the call.
        let ret =
            unsafe { verb!(self.inner.provider, ibv_query_gid(self.inner.as_ptr(), port, index.into(), &raw mut gid)) };
        VerbError::check("ibv_query_gid", ret, || format!("{} port {port} GID index {index}", self.name()))?;
        Ok(Gid::from_raw(&gid))
    }

    /// An entry of a port's GID table with its kind (ibv_query_gid_ex(3)).
    pub fn query_gid_entry(&self, port: u8, index: u8) -> Result<GidEntry, VerbError> {
        if self.inner.provider == Provider::Soft {
            let gid = self.query_gid(port, index)?;
            return Ok(GidEntry { index, gid, kind: GidKind::RoceV2, netdev_index: 0 });
        }
        // SAFETY: ibv_gid_entry is integers only.
        let mut entry: rdma_sys::ibv_gid_entry = unsafe { std::mem::zeroed() };
        let size = size_of_val(&entry);
        // SAFETY: the context is open and libibverbs' own; `entry` is `size` bytes that the call
        // may write.
        let ret = unsafe { _ibv_query_gid_ex(self.inner.as_ptr(), port.into(), index.into(), &raw mut entry, 0, size) };
        VerbError::check("ibv_query_gid_ex", ret, || format!("{} port {port} GID index {index}", self.name()))?;
        Ok(GidEntry {
            index,
            gid: Gid::from_raw(&entry.gid),
            kind: GidKind::from_raw(entry.gid_type),
            netdev_index: entry.ndev_ifindex,
        })
    }

    /// The entries in use of a port's GID table.
    pub fn gids(&self, port: u8) -> Result<Vec<GidEntry>, VerbError> {
        let mut entries = Vec::new();
        for index in indices(self.query_port(port)?.gid_table_len) {
            match self.query_gid_entry(port, index) {
                Ok(entry) if entry.gid.is_unset() => {}
                Ok(entry) => entries.push(entry),
                // ENODATA: an empty entry of the table.
                Err(error) if error.errno.raw() == libc::ENODATA => {}
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }

    /// An entry of a port's P_Key table, in host order (ibv_query_pkey(3)).
    pub fn query_pkey(&self, port: u8, index: u16) -> Result<u16, VerbError> {
        let mut pkey = 0;
        // SAFETY: the context is open; `pkey` may be written by the call.
        let ret = unsafe {
            verb!(self.inner.provider, ibv_query_pkey(self.inner.as_ptr(), port, index.into(), &raw mut pkey))
        };
        VerbError::check("ibv_query_pkey", ret, || format!("{} port {port} P_Key index {index}", self.name()))?;
        Ok(u16::from_be(pkey))
    }

    /// Whether the device has signature offload; without it, the error is that of
    /// [`Capability::SignatureOffload`].
    pub fn check_signature_offload(&self) -> Result<(), Lacking> {
        self.inner.offload().map(|_| ())
    }

    /// Completion vectors: the number of event cores that the device's CQs can be spread over.
    pub fn completion_vectors(&self) -> u32 {
        // SAFETY: the context is open; the field is not written after that.
        u32::try_from(unsafe { (*self.inner.as_ptr()).num_comp_vectors }).unwrap_or(0)
    }
}

/// The open device. Closed when the last object created from it is gone.
#[derive(Debug)]
pub(crate) struct ContextInner {
    pub(crate) provider: Provider,
    raw: NonNull<ibv_context>,
    pub(crate) name: String,
    /// The device has announced its removal (IBV_EVENT_DEVICE_FATAL).
    gone: AtomicBool,
    /// The implementation of signature offload, looked up at the first request.
    pub(crate) offload: OnceLock<Result<Offload, Lacking>>,
}

// SAFETY: control verbs may be called from any thread, in libibverbs and in softnic; the data path
// does not go through this type.
unsafe impl Send for ContextInner {}
// SAFETY: control verbs may be called by several threads at once.
unsafe impl Sync for ContextInner {}

impl ContextInner {
    pub(crate) fn as_ptr(&self) -> *mut ibv_context {
        self.raw.as_ptr()
    }

    /// The device's implementation of signature offload.
    pub(crate) fn offload(&self) -> Result<Offload, Lacking> {
        let found = self.offload.get_or_init(|| {
            // SAFETY: the context is open, and of this provider.
            unsafe { Offload::of(self.provider, self.as_ptr()) }
                .map_err(|says| Capability::SignatureOffload.refused(&self.name, says))
        });
        found.clone()
    }

    /// Records that the device has announced its removal.
    pub(crate) fn set_gone(&self) {
        // Relaxed: carries no data. A thread that destroys an object just before it sees the flag
        // tries again.
        self.gone.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_gone(&self) -> bool {
        // Relaxed: like `set_gone`.
        self.gone.load(Ordering::Relaxed)
    }

    /// The reason why a verb did not destroy an object; `None` if the object is gone.
    ///
    /// When a device is removed, the kernel destroys all its objects of a process before it raises
    /// IBV_EVENT_DEVICE_FATAL, and answers EIO to every later request to destroy one: nothing is
    /// left, and nothing touches their memory any more. The library then keeps a few hundred bytes
    /// per object. RDMAV_ALLOW_DISASSOC_DESTROY makes it free them (ibv_open_device(3)), but not
    /// for programs like ours, which read events while another thread destroys.
    pub(crate) fn undestroyed(&self, ret: libc::c_int) -> Option<Errno> {
        Errno::of_return(ret).filter(|errno| !(errno.raw() == libc::EIO && self.is_gone()))
    }

    pub(crate) fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open, and the descriptor belongs to it until it is closed, which
        // `self` outlives.
        unsafe { BorrowedFd::borrow_raw((*self.as_ptr()).async_fd) }
    }
}

impl Drop for ContextInner {
    fn drop(&mut self) {
        // SAFETY: every object of the context holds the Arc of this one, so that none is left;
        // closed once.
        let ret = unsafe { verb!(self.provider, ibv_close_device(self.as_ptr())) };
        if let Some(errno) = self.undestroyed(ret) {
            tracing::warn!(device = %self.name, %errno, "the device would not close");
        }
    }
}

/// The indices of a table of this length, as far as QPs and AHs can name its entries.
fn indices(len: u32) -> impl Iterator<Item = u8> {
    (0..=u8::MAX).take_while(move |&index| u32::from(index) < len)
}

/// Makes reads of a descriptor of verbs return EAGAIN instead of blocking.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<RawFd, Errno> {
    let nonblocking = |flags| rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK);
    rustix::fs::fcntl_getfl(fd).and_then(nonblocking).map_err(|errno| Errno::new(errno.raw_os_error()))?;
    Ok(fd.as_raw_fd())
}

unsafe extern "C" {
    /// Exported by libibverbs since 1.11 and behind verbs.h's inline `ibv_query_gid_ex`; rdma-sys'
    /// allow-list skips it.
    fn _ibv_query_gid_ex(
        context: *mut ibv_context,
        port_num: u32,
        gid_index: u32,
        entry: *mut rdma_sys::ibv_gid_entry,
        flags: u32,
        entry_size: usize,
    ) -> libc::c_int;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;

    #[test]
    fn every_entry_that_can_be_named_is_looked_at() {
        assert_eq!([0, 1, 255, 256, 1024].map(|len| indices(len).count()), [0, 1, 255, 256, 256]);
        assert_eq!(indices(256).last(), Some(u8::MAX));
    }

    // No device of this suite refuses destruction with EIO, so the rule is tested by itself.
    #[test]
    fn eio_means_destroyed_once_the_device_has_said_that_it_is_gone() {
        let context = Device::find(Provider::Soft, "soft0").unwrap().open().unwrap();
        let raw = |ret| context.inner.undestroyed(ret).map(Errno::raw);
        assert_eq!((raw(0), raw(libc::EIO), raw(libc::EBUSY)), (None, Some(libc::EIO), Some(libc::EBUSY)));
        context.inner.set_gone();
        assert_eq!((raw(0), raw(libc::EIO), raw(libc::EBUSY)), (None, None, Some(libc::EBUSY)));
    }
}
