//! The IP side of a multicast group on RoCE v2, where a group is an IPv6 group, or an IPv4 group
//! mapped into a GID.
//!
//! `ibv_attach_mcast` tells the device which queue pair wants the group, but the frames reach the
//! device only if its network interface has joined the group too. rdma_cm joins by IGMP on the
//! interface (`rdma_join_multicast(3)`). So does this module, and for IPv6 by MLD, with a socket
//! that receives nothing and is kept while the queue pair is attached.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};

use crate::device::attr::{GidEntry, GidKind};
use crate::device::gid::Gid;
use crate::errno::VerbError;

/// A group that a queue pair is attached to.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) group: Gid,
    pub(crate) lid: u16,
    /// The interface's own membership, which ends with the socket.
    pub(crate) _interface: Option<UdpSocket>,
}

impl Membership {
    pub(crate) fn is(&self, group: Gid, lid: u16) -> bool {
        self.group == group && self.lid == lid
    }
}

/// Joins `group` on the interface of the GID `local`, which `entry` looks up in the GID table.
/// Returns `None` in three cases: `group` is not a group, which the device refuses; there is no IP
/// group to join, as on InfiniBand; or the group is IPv4 and `local` is not an IPv4 address. Fails
/// if `local` is not known yet.
pub(crate) fn join(
    local: Gid,
    group: Gid,
    entry: impl FnOnce() -> Result<GidEntry, VerbError>,
) -> io::Result<Option<UdpSocket>> {
    if !group.is_multicast() {
        return Ok(None);
    }
    if local.is_unset() {
        return Err(io::Error::other("the QP learns its interface on the way to INIT: attach it after that"));
    }
    let Some(address) = group.to_ipv4() else { return join_ipv6(group, &entry().map_err(io::Error::other)?) };
    let Some(interface) = local.to_ipv4() else { return Ok(None) };
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.join_multicast_v4(&address, &interface)?;
    Ok(Some(socket))
}

fn join_ipv6(group: Gid, entry: &GidEntry) -> io::Result<Option<UdpSocket>> {
    if entry.kind != GidKind::RoceV2 || entry.netdev_index == 0 {
        return Ok(None);
    }
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?;
    socket.join_multicast_v6(&group.to_ipv6(), entry.netdev_index)?;
    Ok(Some(socket))
}

#[cfg(test)]
mod tests {
    use verbline_softnic::qp_table::Transport;

    use super::*;
    use crate::device::Device;
    use crate::device::provider::Provider;
    use crate::qp::{QpError, QpSpec};

    #[test]
    fn a_qp_whose_interface_could_not_join_is_not_in_the_group() {
        let context = Device::find(Provider::Soft, "soft0").unwrap().open().unwrap();
        let cq = context.create_cq(16, None).unwrap();
        let mut qp = context.alloc_pd().unwrap().create_qp(&QpSpec::new(Transport::Ud, &cq)).unwrap();
        let group = Gid::from(Ipv4Addr::new(239, 7, 9, 1));
        // For example, the kernel's limit of memberships (net.ipv4.igmp_max_memberships).
        let full = |_, _| Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        assert!(matches!(qp.attach_joining(group, 0, full), Err(QpError::Multicast { .. })));
        assert!(qp.detach_mcast(group, 0).is_err(), "it is not attached");
        let mut times = 0;
        for _ in 0..2 {
            qp.attach_joining(group, 0, |_, _| {
                times += 1;
                Ok(None)
            })
            .unwrap();
        }
        assert_eq!(times, 1, "of two attachments the first joins");
        qp.detach_mcast(group, 0).unwrap();
    }

    /// An entry at GID index 1, of the interface with this number.
    fn of_interface(kind: GidKind, netdev_index: u32) -> impl FnOnce() -> Result<GidEntry, VerbError> {
        move || Ok(GidEntry { index: 1, gid: Gid([0xfe; 16]), kind, netdev_index })
    }

    fn unasked() -> Result<GidEntry, VerbError> {
        panic!("IPv4 groups go by the address")
    }

    #[test]
    fn the_interface_is_not_known_before_init() {
        for group in [Gid::from(Ipv4Addr::new(239, 1, 1, 1)), Gid([0xff; 16])] {
            let says = join(Gid::default(), group, unasked).unwrap_err().to_string();
            assert!(says.contains("INIT"), "{says}");
        }
        assert!(join(Gid::default(), Gid::from(Ipv4Addr::new(10, 0, 0, 1)), unasked).expect("no group").is_none());
    }

    #[test]
    fn groups_are_joined_only_on_an_interface_of_this_machine() {
        let group = Gid::from(Ipv4Addr::new(239, 1, 1, 1));
        let loopback = Gid::from(Ipv4Addr::LOCALHOST);
        assert!(join(loopback, group, unasked).expect("the loopback interface takes groups").is_some());
        assert!(join(Gid([0xfe; 16]), group, unasked).expect("no IPv4 interface").is_none());
        // No interface has an address of TEST-NET-1 (RFC 5737).
        assert!(join(Gid::from(Ipv4Addr::new(192, 0, 2, 1)), group, unasked).is_err());
    }

    #[test]
    fn a_group_of_ipv6_is_joined_by_the_interface_of_a_roce_v2_gid() {
        let (local, group) = (Gid([0xfe; 16]), "ff12::7701".parse().unwrap());
        for other in [of_interface(GidKind::Ib, 0), of_interface(GidKind::RoceV1, 1)] {
            assert!(join(local, group, other).expect("there is no IP under it").is_none());
        }
        // No machine has an interface of that number.
        assert!(join(local, group, of_interface(GidKind::RoceV2, i32::MAX.cast_unsigned())).is_err());
    }
}
