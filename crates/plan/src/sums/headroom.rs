//! The sums of prepended headers: the headroom of each pool must hold them.

use crate::check::flow::Flow;
use crate::check::prepended::Prepended;
use crate::diag::sink::Sink;
use crate::read::raw::{RawPlan, RawPool};
use crate::sums::sum::Sum;

pub(crate) fn check(raw: &RawPlan, flow: &Flow, sink: &mut Sink) -> Vec<Sum> {
    let pools = raw.pools.iter().zip(&flow.prepended);
    pools.filter_map(|(pool, prepended)| headroom(pool, raw, prepended, sink)).collect()
}

/// The headroom sum of a pool; `None`: no stage prepends to its packets.
fn headroom(pool: &RawPool, raw: &RawPlan, prepended: &Prepended, sink: &mut Sink) -> Option<Sum> {
    let (name, room) = (&pool.head.name, &pool.headroom_bytes);
    let mut sum = Sum::new(format!("headroom of pool.{name}"), "bytes that stages put in front of a packet", sink);
    let mut way: Vec<_> = prepended.longest().collect();
    way.reverse();
    for (id, bytes) in way {
        let stage = &raw.stages[id.index()].head;
        sum.add(format!("prepended by stage.{}", stage.name), "", bytes.into(), stage.span);
    }
    if sum.terms.is_empty() {
        return None;
    }
    sum.limit_to(room.value, room.span);
    if !sum.holds() {
        let message =
            format!("packets of pool.{name} have {} bytes of headroom, and stages prepend {}", room.value, sum.needed);
        sink.error("headroom-too-small", room.span, message)
            .label(format!("{} needed", sum.needed))
            .note(format!("on the way on which it is most:\n{}", sum.table()))
            .help(format!("write `headroom_bytes = {}` or more", sum.needed));
    }
    Some(sum)
}
