//! The memory of a run beside its packets and regions: the program, its queues and connections, the
//! pools' metadata, and the stages' own allocations.
//!
//! Each constant is a worst case, measured on the software RNIC as the difference in peak resident
//! memory between runs that differ in nothing else. Each app holds whole runs of its shipped plans
//! against the sum (`two_lcores_stay_within_the_sum_of_memory`).

use crate::catalog::stage_needs::Needs;
use crate::check::edges::Edges;
use crate::check::refs::{Links, PortLinks};
use crate::diag::source::Span;
use crate::ids::{RingId, StageId};
use crate::limits::{TIMER_BYTES, WHEEL_BYTES};
use crate::read::raw::RawPlan;
use crate::read::raw_port::RawPort;
use crate::sums::sum::Sum;

/// The heap, the data and the threads of a program that runs its plan, and the kernel's pages for
/// them.
const PROGRAM_BYTES: u64 = 6 << 20;
/// The network of a device with an address: its threads, and its buffers.
const WIRE_BYTES: u64 = 2 << 20;
/// An lcore's stack and counters.
const LCORE_BYTES: u64 = 256 << 10;
/// A completion: two slots of a ring, whose size is a power of two.
const COMPLETION_BYTES: u64 = 128;
/// A queue pair, with its connection.
const QP_BYTES: u64 = 16 << 10;
/// A slot of the send queue, beside its inline data.
const SEND_BYTES: u64 = 400;
/// A part of a scatter/gather list in such a slot.
const SGE_BYTES: u64 = 32;
/// A receive, in a ring whose size is a power of two.
const RECEIVE_BYTES: u64 = 160;
/// Added for the transport over a network: a queue pair's, and each slot's of its send queue.
const QP_WIRE_BYTES: u64 = 32 << 10;
const SEND_WIRE_BYTES: u64 = 384;
/// A slot of a ring between lcores.
const RING_SLOT_BYTES: u64 = 16;

/// A line of metadata, or of the free list, of a packet.
const LINE_BYTES: u64 = 64;

/// The largest term of its kind, and its place in the plan.
pub(super) type Greediest = (u64, Option<Span>);

/// Adds the program and its threads.
pub(super) fn add_program(raw: &RawPlan, sum: &mut Sum) {
    let top = Span::new(0, 0..0);
    sum.add("the program and its threads".to_owned(), "", PROGRAM_BYTES, top);
    for lcore in &raw.lcores {
        sum.add(format!("lcore.{}", lcore.head.name), "its thread", LCORE_BYTES, lcore.head.span);
    }
}

/// Adds queues and connections. `completions` are the entries of each lcore's completion queue.
pub(super) fn add_queues(
    raw: &RawPlan,
    (links, edges): (&Links<'_>, &Edges),
    completions: &[u64],
    sum: &mut Sum,
) -> Greediest {
    let mut greediest = (0, None);
    for device in raw.devices.iter().filter(|device| device.address.is_some()) {
        let what = format!("device.{}", device.head.name);
        sum.add(what, "its network", WIRE_BYTES, device.head.span);
    }
    for (lcore, needed) in raw.lcores.iter().zip(completions) {
        let depth = lcore.cq_depth_wc.as_ref().map_or(*needed, |depth| depth.value.into());
        let bytes = if depth == 0 { 0 } else { COMPLETION_BYTES * depth.next_power_of_two() };
        let span = lcore.cq_depth_wc.as_ref().map_or(lcore.head.span, |depth| depth.span);
        sum.add(format!("lcore.{}", lcore.head.name), "its completion queue", bytes, span);
    }
    for (port, linked) in raw.ports.iter().zip(&links.ports) {
        let what = format!("port.{}", port.head.name);
        let count = port.many().map_or_else(|| 1 + u64::from(port.reconnects()), |many| many.value.into());
        let bytes = count.saturating_mul(queue_pair(port, has_wire(linked, raw)));
        let span = port.many().map_or(port.head.span, |many| many.span);
        let how = if count == 1 { "its queue pair".to_owned() } else { format!("{count} queue pairs") };
        sum.add(what.clone(), &how, bytes, span);
        sum.add(what, "its receives", RECEIVE_BYTES * port.rx_wr(), port.rx_key().span);
        greediest = greediest.max((bytes, Some(span)));
    }
    for (index, ring) in raw.rings.iter().enumerate() {
        let Some(depth) = &ring.depth else { continue };
        let lanes = edges.lanes(RingId::from_index(index)).len() as u64;
        let bytes = lanes * RING_SLOT_BYTES * u64::from(depth.value).next_power_of_two();
        sum.add(format!("ring.{}", ring.head.name), "its slots", bytes, depth.span);
    }
    for injector in &raw.injectors {
        let Some(depth) = &injector.depth else { continue };
        let bytes = RING_SLOT_BYTES * u64::from(depth.value).next_power_of_two();
        sum.add(format!("injector.{}", injector.head.name), "its slots", bytes, depth.span);
    }
    greediest
}

/// Returns the bytes of one queue pair of a port with its send queue.
fn queue_pair(port: &RawPort, by_wire: bool) -> u64 {
    let (own, each) = if by_wire { (QP_WIRE_BYTES, SEND_WIRE_BYTES) } else { (0, 0) };
    let slots = u64::from(port.tx_depth_wr.value) + u64::from(port.ops_depth_wr.value);
    let parts = SGE_BYTES * u64::from(port.max_sge.value);
    QP_BYTES + own + slots * (SEND_BYTES + each + parts + u64::from(port.inline_bytes.value))
}

fn has_wire(port: &PortLinks, raw: &RawPlan) -> bool {
    port.device.is_some_and(|device| raw.devices[device.index()].address.is_some())
}

/// Adds the stages' own allocations. Returns the largest.
pub(super) fn add_stages(raw: &RawPlan, needs: &[(StageId, Needs)], sum: &mut Sum) -> Greediest {
    let mut greediest = (0, None);
    for (id, needs) in needs {
        let head = &raw.stages[id.index()].head;
        for (what, bytes) in &needs.memory_bytes {
            sum.add(format!("stage.{}", head.name), what, *bytes, head.span);
        }
        let bytes = needs.memory_bytes.iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes));
        greediest = greediest.max((bytes, Some(head.span)));
    }
    for stage in raw.stages.iter().filter(|stage| stage.timers_max.value > 0) {
        let bytes = u64::from(stage.timers_max.value) * TIMER_BYTES + WHEEL_BYTES;
        let span = stage.timers_max.span;
        sum.add(format!("stage.{}", stage.head.name), "its timers", bytes, span);
        greediest = greediest.max((bytes, Some(span)));
    }
    greediest
}

/// Adds the touched part of the metadata of pools, which is resident from the start: for each
/// packet a line of metadata and one of the free list, on ordinary pages.
pub(super) fn add_touched_metadata(raw: &RawPlan, sum: &mut Sum) {
    add_metadata(raw, sum, |packets| 2 * LINE_BYTES * packets);
}

/// Adds the mapped part of it. The block of lines begins at a multiple of its own size, a power of
/// two, so the allocator maps twice that size.
pub(super) fn add_mapped_metadata(raw: &RawPlan, sum: &mut Sum) {
    add_metadata(raw, sum, |packets| 2 * (LINE_BYTES * packets).next_power_of_two() + LINE_BYTES * packets);
}

fn add_metadata(raw: &RawPlan, sum: &mut Sum, bytes: impl Fn(u64) -> u64) {
    for pool in &raw.pools {
        let Some(packets) = &pool.packets else { continue };
        let what = format!("pool.{}", pool.head.name);
        sum.add(what, "its packets' metadata", bytes(packets.value.into()), packets.span);
    }
}
