//! Addresses of software devices, by which other processes and hosts reach them.

use std::net::IpAddr;

use verbline_softnic::wire::{self, AttachError};
pub use verbline_softnic::wire::{Discard, Incidents, LinkCounters};

use crate::device::context::Context;
use crate::device::provider::Provider;

/// Why a device gets no address.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// Kernel devices have the addresses of their network interface.
    #[error("{device} is a kernel device: its addresses are those of its network interface (`ip addr`)")]
    Kernel {
        /// The device.
        device: String,
    },
    /// The software device refused.
    #[error(transparent)]
    Soft(#[from] AttachError),
}

impl Context {
    /// Gives a software device an address of this host, for the life of this process. Other
    /// processes and hosts reach the device there by RoCE v2, and it reaches them. The address is a
    /// new entry of the GID table; its index is returned. Existing queue pairs of the device do not
    /// use it. Other processes of the user may have the same address.
    pub fn set_address(&self, address: IpAddr) -> Result<u8, AddressError> {
        if self.provider() == Provider::Kernel {
            return Err(AddressError::Kernel { device: self.name().to_owned() });
        }
        let wire = wire::attach(self.name(), address)?;
        Ok(u8::try_from(wire.gid_index()).unwrap_or(u8::MAX))
    }

    /// The address set by [`Context::set_address`].
    pub fn address(&self) -> Option<IpAddr> {
        let wire = wire::of_device(self.name()).filter(|_| self.provider() == Provider::Soft)?;
        Some(wire.address().ip())
    }
}

/// Network counters of a software device with an address, since the address was set.
#[derive(Clone, Debug)]
pub struct WireCounters {
    /// The device's name.
    pub device: &'static str,
    /// The device's address.
    pub address: IpAddr,
    /// Counters of the device's socket.
    pub link: LinkCounters,
    /// Incidents that a lossless network would not have.
    pub incidents: Incidents,
}

/// The counters of each software device of this process with an address, by a system call for each
/// of its sockets. Threads that send and receive go on meanwhile, so that the values are not of one
/// instant.
pub fn wire_counters() -> impl Iterator<Item = WireCounters> {
    wire::all().map(|wire| WireCounters {
        device: wire.device_name(),
        address: wire.address().ip(),
        link: wire.link_counters(),
        incidents: wire.incidents(),
    })
}
