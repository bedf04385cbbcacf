//! Addresses of soft devices: a device is found by the IPv4 addresses of its GID table.

use std::net::IpAddr;

use crate::connection::ConnectionError;
use crate::device::gid::Gid;
use crate::device::provider::Provider;
use crate::device::{Device, DeviceError};
use crate::errno::{Errno, VerbError};

/// Every soft device has one port.
pub(crate) const PORT: u8 = 1;

/// A device's address: the device, and the entry of its GID table.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) device: String,
    pub(crate) gid_index: u8,
    pub(crate) address: IpAddr,
}

pub(crate) fn homes() -> Result<Vec<Home>, ConnectionError> {
    let mut homes = Vec::new();
    for device in Device::list(Provider::Soft).map_err(verb_error)? {
        for entry in device.open().map_err(verb_error)?.gids(PORT)? {
            homes.push(Home {
                device: device.name().to_owned(),
                gid_index: entry.index,
                address: address_of(entry.gid),
            });
        }
    }
    Ok(homes)
}

fn address_of(gid: Gid) -> IpAddr {
    gid.to_ipv4().map_or(IpAddr::V6(gid.to_ipv6()), IpAddr::V4)
}

fn verb_error(error: DeviceError) -> ConnectionError {
    match error {
        DeviceError::Verb(error) => error.into(),
        DeviceError::NotFound { .. } => {
            VerbError::new("ibv_open_device", error.to_string(), Errno::new(libc::ENODEV)).into()
        }
    }
}
