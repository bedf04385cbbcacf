//! Selects a device, and an entry of its GID table, if the plan names none. The same plan therefore
//! runs on the software RNIC and on kernel devices: only `provider` changes.
//!
//! Guarantees: a kernel device is never guessed; with several candidates the error names them. The
//! same machine in the same state gives the same choice.

use verbline_verbs::{
    Provider,
    attr::{GidEntry, GidKind},
};

/// A candidate device.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Its own name.
    pub(crate) name: String,
    /// The state of the plan's port, or the reason why the device has none; `None` if the port is
    /// active.
    pub(crate) fault: Option<String>,
}

/// The reason why no device or GID can be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PickError {
    #[error(
        "there are no {0} devices: load a driver (for the kernel's software RNIC, `modprobe rdma_rxe` and `rdma link \
         add rxe0 type rxe netdev eth0`), or use the provider \"soft\", which needs neither"
    )]
    NoDevice(Provider),
    #[error(
        "no {provider} device has an active port {port_num}; there are: {}; bring the link of one up (`ip link`, `rdma \
         link`), or name another `port`",
        .devices.join(", ")
    )]
    NoneActive { provider: Provider, port_num: u8, devices: Vec<String> },
    #[error(
        "port {port_num} is active on {} {provider} devices: {}; say which one is meant, e.g. name = {:?}",
        .active.len(), .active.join(", "), .active[0]
    )]
    Several { provider: Provider, port_num: u8, active: Vec<String> },
    #[error("port {port_num} of {device} has no GID: give its network interface an address")]
    NoGid { device: String, port_num: u8 },
}

/// The index of the chosen candidate: the only one with an active port. Of several software devices
/// it is the first: they are alike, and belong to this process alone.
pub(crate) fn device(provider: Provider, port_num: u8, candidates: &[Candidate]) -> Result<usize, PickError> {
    let active: Vec<usize> = (0..candidates.len()).filter(|index| candidates[*index].fault.is_none()).collect();
    match (active.as_slice(), provider) {
        ([only], _) | ([only, ..], Provider::Soft) => Ok(*only),
        ([], _) if candidates.is_empty() => Err(PickError::NoDevice(provider)),
        ([], _) => {
            let told = |one: &Candidate| format!("{} ({})", one.name, one.fault.as_deref().unwrap_or_default());
            Err(PickError::NoneActive { provider, port_num, devices: candidates.iter().map(told).collect() })
        }
        (several, _) => {
            let active = several.iter().map(|index| candidates[*index].name.clone()).collect();
            Err(PickError::Several { provider, port_num, active })
        }
    }
}

/// The GID with the widest reach: RoCE v2 by an IPv4 address (which multicast groups and rdma_cm
/// use too), by an IPv6 address, by a link-local one; then InfiniBand's; then RoCE v1, which no
/// router forwards. The first of equals. A plan's queue pairs use it unless `gid_index` says
/// otherwise.
pub fn gid(entries: &[GidEntry]) -> Option<GidEntry> {
    entries.iter().copied().min_by_key(|entry| (rank(entry), entry.index))
}

fn rank(entry: &GidEntry) -> u8 {
    match entry.kind {
        GidKind::RoceV2 if entry.gid.to_ipv4().is_some() => 0,
        GidKind::RoceV2 if !entry.gid.to_ipv6().is_unicast_link_local() => 1,
        GidKind::RoceV2 => 2,
        GidKind::Ib => 3,
        GidKind::RoceV1 => 4,
        GidKind::Unknown(_) => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(list: &[(&str, Option<&str>)]) -> Vec<Candidate> {
        let one = |(name, fault): &(&str, Option<&str>)| Candidate {
            name: (*name).to_owned(),
            fault: fault.map(str::to_owned),
        };
        list.iter().map(one).collect()
    }

    fn entries(list: &[(&str, GidKind)]) -> Vec<GidEntry> {
        let one = |(index, (gid, kind)): (usize, &(&str, GidKind))| GidEntry {
            index: index as u8 * 2,
            gid: gid.parse().unwrap(),
            kind: *kind,
            netdev_index: 0,
        };
        list.iter().enumerate().map(one).collect()
    }

    #[test]
    fn the_only_active_device_is_meant() {
        let list = candidates(&[("mlx5_0", Some("Down")), ("mlx5_1", None), ("rxe0", Some("no port 2"))]);
        assert_eq!(device(Provider::Kernel, 1, &list), Ok(1));
    }

    #[test]
    fn kernel_devices_are_not_guessed_and_software_devices_are_alike() {
        let list = candidates(&[("a", Some("Down")), ("b", None), ("c", None)]);
        assert_eq!(device(Provider::Soft, 1, &list), Ok(1));
        assert_eq!(
            device(Provider::Kernel, 1, &list).unwrap_err().to_string(),
            "port 1 is active on 2 kernel devices: b, c; say which one is meant, e.g. name = \"b\""
        );
        let down = candidates(&[("a", Some("Down")), ("b", Some("no port 2"))]);
        assert_eq!(
            device(Provider::Kernel, 2, &down).unwrap_err().to_string(),
            "no kernel device has an active port 2; there are: a (Down), b (no port 2); bring the link of one up (`ip \
             link`, `rdma link`), or name another `port`"
        );
        assert_eq!(
            device(Provider::Kernel, 1, &[]).unwrap_err().to_string(),
            "there are no kernel devices: load a driver (for the kernel's software RNIC, `modprobe rdma_rxe` and \
             `rdma link add rxe0 type rxe netdev eth0`), or use the provider \"soft\", which needs neither"
        );
    }

    #[test]
    fn the_gid_that_reaches_furthest_is_meant() {
        let (v1, v2) = (GidKind::RoceV1, GidKind::RoceV2);
        let mut table = vec![
            ("fe80::1", v1),
            ("fe80::1", v2),
            ("2001:db8::1", v2),
            ("10.9.9.1", v1),
            ("10.9.9.1", v2),
            ("10.9.9.2", v2),
        ];
        let mut order = Vec::new();
        while let Some(best) = gid(&entries(&table)) {
            order.push(table.remove(usize::from(best.index) / 2));
        }
        let expected = [
            ("10.9.9.1", v2),
            ("10.9.9.2", v2),
            ("2001:db8::1", v2),
            ("fe80::1", v2),
            ("fe80::1", v1),
            ("10.9.9.1", v1),
        ];
        assert_eq!(order, expected);
    }

    // InfiniBand GIDs are the subnet prefix and a GUID: they give no reason to choose.
    #[test]
    fn of_infiniband_it_is_the_first() {
        let table = entries(&[("fe80::2:c903:1:2", GidKind::Ib), ("fec0::2:c903:1:2", GidKind::Ib)]);
        assert_eq!(gid(&table).map(|entry| entry.index), Some(0));
    }
}
