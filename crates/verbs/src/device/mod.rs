//! The devices of this machine: listed by provider, opened by name.
//!
//! A machine without RDMA in its kernel has an empty list of kernel devices; that is not a failure.

pub(crate) mod address;
pub(crate) mod attr;
pub(crate) mod capability;
pub(crate) mod caps;
pub(crate) mod context;
pub(crate) mod event;
pub(crate) mod extended;
pub(crate) mod gid;
pub(crate) mod offload;
pub(crate) mod provider;

use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::ibv_device;

use crate::device::context::Context;
use crate::device::provider::{Provider, verb};
use crate::errno::{Errno, VerbError, making_descriptors};

/// Why devices could not be listed or opened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeviceError {
    /// The provider refused.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// No device has this name.
    #[error("no {provider} device is named {name:?}; {}", have(.available))]
    NotFound {
        /// The provider searched.
        provider: Provider,
        /// The requested name.
        name: String,
        /// The names of the provider's devices.
        available: Vec<String>,
    },
}

fn have(available: &[String]) -> String {
    if available.is_empty() {
        "there are none: load a driver (for the kernel's software RNIC, `modprobe rdma_rxe` and `rdma link add rxe0 \
         type rxe netdev eth0`), or use the provider \"soft\", which needs neither"
            .to_owned()
    } else {
        format!("there are: {}", available.join(", "))
    }
}

/// A device that can be opened.
#[derive(Clone, Debug)]
pub struct Device {
    provider: Provider,
    name: String,
    raw: NonNull<ibv_device>,
    _list: Arc<List>,
}

// SAFETY: an ibv_device is not written after it was listed, and stays allocated for as long as
// `_list`; libibverbs' and softnic's ibv_open_device and ibv_get_device_name may be called from any
// thread.
unsafe impl Send for Device {}
// SAFETY: as above; `&Device` only reads.
unsafe impl Sync for Device {}

impl Device {
    /// Lists the devices of a provider, in its order. An empty list is not an error.
    pub fn list(provider: Provider) -> Result<Vec<Device>, DeviceError> {
        let mut count = 0;
        // SAFETY: `count` is a live c_int that the call may write (ibv_get_device_list(3)).
        let raw = unsafe { verb!(provider, ibv_get_device_list(&raw mut count)) };
        let Some(raw) = NonNull::new(raw) else {
            let errno = Errno::last();
            // No uverbs in this kernel, which means "no devices".
            if errno.raw() == libc::ENOSYS {
                return Ok(Vec::new());
            }
            return Err(VerbError::new("ibv_get_device_list", format!("the {provider} provider"), errno).into());
        };
        let list = Arc::new(List { provider, raw });
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: on success the list holds `count` pointers to devices that live until the list is
        // freed, which `list` does when the last Device is gone.
        let devices = unsafe { std::slice::from_raw_parts(raw.as_ptr(), count) };
        Ok(devices.iter().filter_map(|&raw| NonNull::new(raw)).map(|raw| Device::new(raw, &list)).collect())
    }

    /// Finds a device by name, such as `mlx5_0`. The error for an unknown name lists the known
    /// ones.
    pub fn find(provider: Provider, name: &str) -> Result<Device, DeviceError> {
        let devices = Device::list(provider)?;
        let available = devices.iter().map(|device| device.name.clone()).collect();
        devices.into_iter().find(|device| device.name == name).ok_or_else(|| DeviceError::NotFound {
            provider,
            name: name.to_owned(),
            available,
        })
    }

    /// The device's name, such as `mlx5_0`, `rxe0` or `soft0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The provider of the device.
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// Opens the device (ibv_open_device(3)). Objects created on the context keep it alive.
    pub fn open(&self) -> Result<Context, DeviceError> {
        // SAFETY: `raw` is a device of the list that `self._list` keeps.
        let raw = unsafe { verb!(self.provider, ibv_open_device(self.raw.as_ptr())) };
        let raw = NonNull::new(raw).ok_or_else(|| {
            let error = VerbError::last("ibv_open_device", || self.name.clone());
            match self.provider {
                Provider::Kernel => error,
                // It has no file in /dev/infiniband.
                Provider::Soft => {
                    let advice = making_descriptors(error.errno);
                    error.advise(advice)
                }
            }
        })?;
        // SAFETY: `raw` was just opened and nobody else has it: the Context becomes its owner.
        Ok(unsafe { Context::from_raw(self.provider, raw, self.name.clone()) }?)
    }

    fn new(raw: NonNull<ibv_device>, list: &Arc<List>) -> Device {
        // SAFETY: `raw` is a device of a live list; its name is a NUL-terminated string inside it.
        let name = unsafe { CStr::from_ptr(verb!(list.provider, ibv_get_device_name(raw.as_ptr()))) };
        Device { provider: list.provider, name: name.to_string_lossy().into_owned(), raw, _list: list.clone() }
    }
}

#[derive(Debug)]
struct List {
    provider: Provider,
    raw: NonNull<*mut ibv_device>,
}

// SAFETY: the list is only read, and freed once, by the thread that drops it last;
// ibv_free_device_list may be called from any thread.
unsafe impl Send for List {}
// SAFETY: threads that share the list only read it.
unsafe impl Sync for List {}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list came from ibv_get_device_list of the same provider and is freed once; no
        // Device that points into it is left. Contexts opened from it hold their own reference to
        // the device.
        unsafe { verb!(self.provider, ibv_free_device_list(self.raw.as_ptr())) };
    }
}
