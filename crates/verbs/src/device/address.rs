//! Software devices that other processes and hosts reach: by an address of this host.

use std::net::IpAddr;

use verbline_softnic::wire::{self, AttachError};
pub use verbline_softnic::wire::{Discard, Incidents, LinkCounters};

use crate::device::context::Context;
use crate::device::provider::Provider;

/// Why a device gets no address.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// It has those of its network interface.
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
    /// Gives a software device an address of this host, for as long as this process: other
    /// processes and hosts reach it there by RoCE v2, and it reaches them. It is one more entry of
    /// the GID table, whose index this gives. Queue pairs that the device has already don't go by
    /// it. Other processes of the user may have the same address.
    pub fn set_address(&self, address: IpAddr) -> Result<u8, AddressError> {
        if self.provider() == Provider::Kernel {
            return Err(AddressError::Kernel { device: self.name().to_owned() });
        }
        let wire = wire::attach(self.name(), address)?;
        Ok(u8::try_from(wire.gid_index()).unwrap_or(u8::MAX))
    }

    /// The address that [`Context::set_address`] gave to the device.
    pub fn address(&self) -> Option<IpAddr> {
        let wire = wire::of_device(self.name()).filter(|_| self.provider() == Provider::Soft)?;
        Some(wire.address().ip())
    }
}

/// What a software device with an address did on the network, since it has it.
#[derive(Clone, Debug)]
pub struct WireCounters {
    /// The device's name.
    pub device: &'static str,
    /// Its address.
    pub address: IpAddr,
    /// What its socket counted.
    pub link: LinkCounters,
    /// What went otherwise than on a network that loses nothing.
    pub incidents: Incidents,
}

/// Of each software device of this process that has an address. Takes no lock: a thread that sends
/// and receives goes on meanwhile, so that the values are not of one instant.
pub fn wire_counters() -> impl Iterator<Item = WireCounters> {
    wire::all().map(|wire| WireCounters {
        device: wire.device_name(),
        address: wire.address().ip(),
        link: wire.link_counters(),
        incidents: wire.incidents(),
    })
}
