//! Regions: memory of a stage that work requests of this end and of its peers may read and write by
//! a key.
//!
//! Checks that a region has at most one owner, and warns of one without: it is unused. A region
//! that a peer may write must be writable for the device (ibv_reg_mr(3)).

use crate::check::refs::Links;
use crate::choices::Rights;
use crate::choices::Transport;
use crate::diag::sink::Sink;
use crate::diag::suggestions;
use crate::ids::{DeviceId, StageId};
use crate::read::raw::RawPlan;
use crate::read::raw::RawRegion;
use crate::read::raw_port::RawPort;
use crate::read::reader::Field;

/// Results of the checks of one region.
#[derive(Debug)]
pub(crate) struct RegionFacts {
    pub(crate) device: Option<DeviceId>,
    pub(crate) rights: Rights,
    pub(crate) owner: Option<StageId>,
}

pub(crate) fn check(raw: &RawPlan, sink: &mut Sink) -> Vec<RegionFacts> {
    let facts = |region: &RawRegion, sink: &mut Sink| RegionFacts {
        device: region.device.as_ref().and_then(|field| find_device(raw, field, sink)),
        rights: rights(region, sink),
        owner: None,
    };
    let mut all: Vec<RegionFacts> = raw.regions.iter().map(|region| facts(region, sink)).collect();
    own(raw, &mut all, sink);
    // A misspelt name elsewhere could make a region look unused.
    if !sink.has_errors() {
        for (region, _) in raw.regions.iter().zip(&all).filter(|(_, facts)| facts.owner.is_none()) {
            let name = &region.head.name;
            sink.warn("unused", region.head.span, format!("region.{name} is not used: no stage owns it"))
                .help(format!("remove it, or write `regions = [\"{name}\"]` in the stage that owns it"));
        }
    }
    all
}

fn find_device(raw: &RawPlan, field: &Field<String>, sink: &mut Sink) -> Option<DeviceId> {
    let known = || raw.devices.iter().map(|device| device.head.name.as_str());
    let found = known().position(|name| name == field.value);
    if found.is_none() && !raw.unread.has("device", &field.value) {
        sink.error("dangling", field.span, format!("there is no device `{}`", field.value)).help(suggestions::suggest(
            &field.value,
            known(),
            "the devices are",
        ));
    }
    found.map(DeviceId::from_index)
}

fn rights(region: &RawRegion, sink: &mut Sink) -> Rights {
    let mut rights = Rights::NONE;
    for field in &region.rights {
        match Rights::WORDS.iter().find(|(word, _)| *word == field.value) {
            Some((_, right)) => rights = rights | *right,
            None => {
                let words = Rights::WORDS.iter().map(|(word, _)| *word);
                sink.error("bad-value", field.span, format!("`{}` is not a right", field.value))
                    .help(suggestions::suggest(&field.value, words, "the rights are"));
            }
        }
    }
    let peers_write = region.rights.iter().find(|field| ["remote-write", "remote-atomic"].contains(&&*field.value));
    if let Some(field) = peers_write.filter(|_| !rights.contains(Rights::LOCAL_WRITE)) {
        let name = &region.head.name;
        sink.error("rights-conflict", field.span, format!("peers may write region.{name}, and its own device may not"))
            .note("a device refuses to register memory so (ibv_reg_mr(3))")
            .help("add \"local-write\" to `rights`");
    }
    rights
}

/// Finds the owner of each region.
fn own(raw: &RawPlan, all: &mut [RegionFacts], sink: &mut Sink) {
    for (index, stage) in raw.stages.iter().enumerate() {
        let id = StageId::from_index(index);
        for field in &stage.regions {
            let known = || raw.regions.iter().map(|region| region.head.name.as_str());
            let Some(place) = known().position(|name| name == field.value) else {
                if !raw.unread.has("region", &field.value) {
                    sink.error("dangling", field.span, format!("there is no region `{}`", field.value))
                        .help(suggestions::suggest(&field.value, known(), "the regions are"));
                }
                continue;
            };
            match all[place].owner {
                None => all[place].owner = Some(id),
                Some(owner) => {
                    let other = &raw.stages[owner.index()].head;
                    let message = match owner == id {
                        true => format!("stage.{} names region.{} twice", other.name, field.value),
                        false => format!("region.{} is owned by stage.{} already", field.value, other.name),
                    };
                    sink.error("two-owners", field.span, message)
                        .related(other.span, "its owner")
                        .help("a region has one owner; give each stage a region of its own");
                }
            }
        }
    }
}

/// Checks that operations go through the send queue of a connected queue pair.
pub(crate) fn check_port(port: &RawPort, sink: &mut Sink) {
    let name = &port.head.name;
    if port.immediates.given && !port.receives() {
        sink.no_effect("immediates", port.immediates.span, format!("port.{name} receives nothing"))
            .help("remove it, or add `rx_depth_wr`");
    }
    let depth = &port.ops_depth_wr;
    if depth.value == 0 {
        for (key, field, is_asked) in [
            ("windows", &port.windows, port.windows.value > 0),
            ("max_sge", &port.max_sge, port.max_sge.given),
            ("signature_keys", &port.signature_keys, port.signature_keys.value > 0),
        ] {
            if is_asked {
                sink.no_effect(key, field.span, format!("port.{name} carries out no operations"))
                    .help("remove it, or add `ops_depth_wr`");
            }
        }
        return;
    }
    let is_unreliable = |transport: &&Field<Transport>| transport.value == Transport::Uc;
    if let Some(transport) = port.transport.as_ref().filter(is_unreliable).filter(|_| port.signature_keys.value > 0) {
        let message = format!("`signature_keys` is for RC; port.{name} is UC");
        sink.error("connected-only-key", port.signature_keys.span, message)
            .related(transport.span, "its transport")
            .note("a response that waits for its blocks is fenced, which UC does not know")
            .help("remove it, or write `transport = \"rc\"`");
    }
    if let Some(transport) = port.transport.as_ref().filter(|transport| transport.value == Transport::Ud) {
        sink.error("connected-only-key", depth.span, format!("`ops_depth_wr` is for RC and UC; port.{name} is UD"))
            .related(transport.span, "its transport")
            .note("datagrams reach no memory of a peer")
            .help("remove it, or write `transport = \"rc\"` with a peer or an address");
    }
    if port.tx_depth_wr.value == 0 {
        sink.error("missing-key", depth.span, format!("port.{name} carries out operations and has no send queue"))
            .note("operations are posted in order with what a stage sends")
            .help("add `tx_depth_wr = 1`, or as many as it sends at once");
    }
}

impl Links<'_> {
    /// The most packets that operations of a stage can own at once: the operations under way at the
    /// ports that it sends to, times the parts that each may have.
    pub(crate) fn operations(&self, id: StageId, raw: &RawPlan) -> u32 {
        let mut ports: Vec<_> = self.stages[id.index()].outputs.iter().filter_map(|hop| hop.target.port()).collect();
        ports.sort_unstable();
        ports.dedup();
        let packets = |port: &RawPort| port.operations().wr().saturating_mul(port.max_sge.value.into());
        let depths = ports.iter().map(|port| packets(&raw.ports[port.index()]));
        u32::try_from(depths.fold(0, u64::saturating_add)).unwrap_or(u32::MAX)
    }
}
