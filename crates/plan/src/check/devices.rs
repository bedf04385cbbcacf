//! Devices: the address at which a software device is reached by others.

use std::net::IpAddr;

use crate::choices::Provider;
use crate::diag::sink::Sink;
use crate::read::raw::{RawDevice, RawPlan};
use crate::read::reader::Field;

/// Checks every device by itself, and that no two have one address.
pub(crate) fn check(raw: &RawPlan, sink: &mut Sink) {
    let mut taken: Vec<(IpAddr, &RawDevice, &Field<String>)> = Vec::new();
    for device in &raw.devices {
        let Some(field) = &device.address else { continue };
        let Some(address) = address(device, field, sink) else { continue };
        let same = |(other, before, _): &&(IpAddr, &RawDevice, _)| {
            *other == address && value(&before.device_name) != value(&device.device_name)
        };
        if let Some((_, before, at)) = taken.iter().find(same) {
            let message = format!("device.{} can't have {address} as well", device.head.name);
            sink.error("address-taken", field.span, message)
                .related(at.span, format!("device.{} has it", before.head.name))
                .help("give each device an address of its own");
        }
        taken.push((address, device, field));
    }
}

fn value(field: &Option<Field<String>>) -> Option<&str> {
    field.as_ref().map(|field| field.value.as_str())
}

/// The address, if it can be one.
fn address(device: &RawDevice, field: &Field<String>, sink: &mut Sink) -> Option<IpAddr> {
    if let Some(provider) = device.provider.as_ref().filter(|provider| provider.value == Provider::Kernel) {
        sink.error("soft-only-key", field.span, "`address` is for software devices")
            .related(provider.span, "this is a kernel device")
            .note("its addresses are those of its network interface")
            .help("remove it, or write `provider = \"soft\"`");
        return None;
    }
    let refused = match field.value.parse::<IpAddr>() {
        Ok(address) if address.is_unspecified() || address.is_multicast() => {
            format!("`{address}` is no address that a peer can send to")
        }
        Ok(address) => return Some(address),
        Err(_) => format!("`{}` is not an IP address", field.value),
    };
    sink.error("bad-value", field.span, refused)
        .help("write an address of this host, without a port: e.g. \"127.0.0.1\", or one that `ip addr` shows");
    None
}
