//! Devices: the software device that a section means, and the address at which others reach it.

use std::net::IpAddr;

use crate::check::addresses;
use crate::choices::Provider;
use crate::diag::sink::Sink;
use crate::read::raw::{RawDevice, RawPlan};
use crate::read::reader::Field;

/// The software devices. Without a name a section means the first.
const SOFT: [&str; 2] = ["soft0", "soft1"];

/// Checks each device by itself, and that every software device has one address of its own.
pub(crate) fn check(raw: &RawPlan, sink: &mut Sink) {
    let mut taken: Vec<(IpAddr, &str, &RawDevice, &Field<String>)> = Vec::new();
    for device in &raw.devices {
        let soft = soft_name(device, sink);
        let Some(field) = &device.address else { continue };
        let (Some(address), Some(soft)) = (address(device, field, sink), soft) else { continue };
        let name = &device.head.name;
        let clash = |(other, of, ..): &&(IpAddr, &str, _, _)| (*other == address) != (*of == soft);
        if let Some((has, _, before, at)) = taken.iter().find(clash) {
            let before = &before.head.name;
            if *has == address {
                sink.error("address-taken", field.span, format!("device.{name} can't have {address} as well"))
                    .related(at.span, format!("device.{before} has it"))
                    .help("give each device an address of its own");
            } else {
                let message = format!("device.{name} can't have {address}: {soft} has {has} already");
                sink.error("address-taken", field.span, message)
                    .related(at.span, format!("device.{before} is {soft} too"))
                    .note("a software device has one address, and a section without a name means soft0")
                    .help(format!(
                        "write the same address, or make device.{name} the other one: name = {:?}",
                        other(soft)
                    ));
            }
        }
        taken.push((address, soft, device, field));
    }
}

/// The software device that a section means; `None`: a card, or an unknown name.
fn soft_name<'a>(device: &'a RawDevice, sink: &mut Sink) -> Option<&'a str> {
    device.provider.as_ref().filter(|provider| provider.value == Provider::Soft)?;
    let Some(name) = &device.device_name else { return Some(SOFT[0]) };
    if !SOFT.contains(&name.value.as_str()) {
        sink.error("bad-value", name.span, format!("no software device is named {:?}", name.value))
            .help("there are two: write \"soft0\" or \"soft1\"");
        return None;
    }
    Some(&name.value)
}

fn other(soft: &str) -> &'static str {
    if soft == SOFT[0] { SOFT[1] } else { SOFT[0] }
}

/// The address, if it is a possible one.
fn address(device: &RawDevice, field: &Field<String>, sink: &mut Sink) -> Option<IpAddr> {
    if let Some(provider) = device.provider.as_ref().filter(|provider| provider.value == Provider::Kernel) {
        sink.error("soft-only-key", field.span, "`address` is for software devices")
            .related(provider.span, "this is a kernel device")
            .note("its addresses are those of its network interface")
            .help("remove it, or write `provider = \"soft\"`");
        return None;
    }
    let refused = match addresses::ip(&field.value) {
        Some(address) if address.is_unspecified() || address.is_multicast() => {
            format!("`{address}` is no address that a peer can send to")
        }
        Some(IpAddr::V6(address)) if address.is_unicast_link_local() => {
            format!("`{address}` is a link-local address, which means another host on each interface")
        }
        Some(address) => return Some(address),
        None => format!("`{}` is not an IP address", field.value),
    };
    sink.error("bad-value", field.span, refused)
        .help("write an address of this host, without a port: e.g. \"127.0.0.1\", or one that `ip addr` shows");
    None
}
