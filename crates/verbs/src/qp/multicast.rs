//! The IP side of a multicast group on RoCE v2, where a group is an IPv4 group mapped into a GID.
//!
//! `ibv_attach_mcast` tells the device which queue pair wants the group; the frames reach the
//! device only if its network interface has joined the group too. rdma_cm does that by an IGMP join
//! on the interface (`rdma_join_multicast(3)`); so does this, by a socket that receives nothing and
//! is kept for as long as the queue pair is attached.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};

use crate::device::gid::Gid;

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

/// Joins `group` on the interface that has the address in `local`. `None` where `local` is no IPv4
/// address, or `group` none of a group: then there is no IP-level group to join, and the device
/// refuses what is none. Refused where `local` is not known yet.
pub(crate) fn join(local: Gid, group: Gid) -> io::Result<Option<UdpSocket>> {
    let Some(address) = group.to_ipv4().filter(Ipv4Addr::is_multicast) else { return Ok(None) };
    if local.is_unset() {
        return Err(io::Error::other("the QP learns its interface on the way to INIT: attach it after that"));
    }
    let Some(interface) = local.to_ipv4() else { return Ok(None) };
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.join_multicast_v4(&address, &interface)?;
    Ok(Some(socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::device::provider::Provider;
    use crate::qp::{QpError, QpSpec};
    use crate::transport::Transport;

    #[test]
    fn a_qp_whose_interface_could_not_join_is_not_in_the_group() {
        let context = Device::find(Provider::Soft, "soft0").unwrap().open().unwrap();
        let cq = context.create_cq(16, None).unwrap();
        let mut qp = context.alloc_pd().unwrap().create_qp(&QpSpec::new(Transport::Ud, &cq)).unwrap();
        let group = Gid::from(Ipv4Addr::new(239, 7, 9, 1));
        // The kernel's limit of memberships (net.ipv4.igmp_max_memberships), for one.
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

    #[test]
    fn the_interface_is_not_known_before_init() {
        let says = join(Gid::default(), Gid::from(Ipv4Addr::new(239, 1, 1, 1))).unwrap_err().to_string();
        assert!(says.contains("INIT"), "{says}");
        assert!(join(Gid::default(), Gid([0xff; 16])).expect("no IPv4 group").is_none());
        assert!(join(Gid::default(), Gid::from(Ipv4Addr::new(10, 0, 0, 1))).expect("no group").is_none());
    }

    #[test]
    fn only_ipv4_groups_are_joined_and_only_on_an_interface_of_this_machine() {
        let group = Gid::from(Ipv4Addr::new(239, 1, 1, 1));
        let loopback = Gid::from(Ipv4Addr::LOCALHOST);
        assert!(join(loopback, group).expect("the loopback interface takes groups").is_some());
        assert!(join(Gid([0xfe; 16]), group).expect("no IPv4 interface").is_none());
        assert!(join(loopback, Gid([0xff; 16])).expect("no IPv4 group").is_none());
        // TEST-NET-1 (RFC 5737) is nobody's.
        assert!(join(Gid::from(Ipv4Addr::new(192, 0, 2, 1)), group).is_err());
    }
}
