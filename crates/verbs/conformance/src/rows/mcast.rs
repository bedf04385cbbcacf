//! Multicast: `ibv_attach_mcast(3)`, `ibv_detach_mcast(3)`, and the receivers of a datagram to a
//! group.

use super::common::*;
use crate::check::{Outcome, same};
use crate::rig::{Attr, Cap, Gid, Link, Rig, Side, SideSpec, Wr};
use crate::suite::Row;
use std::net::Ipv4Addr;

/// The QP number of a multicast group (ibv_post_send).
const GROUP_QPN: u32 = 0xff_ffff;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::ATTACH, says, test).needs(Cap::Multicast);
    vec![
        Row::new(
            "mcast/reaches-an-attached-qp",
            page::POST_SEND,
            "A datagram to 0xFFFFFF and a group's address reaches a queue pair that is attached to the group",
            reaches_an_attached_qp,
        )
        .needs(Cap::Multicast),
        row("mcast/reaches-all-attached", "Each attached queue pair gets a copy", reaches_all_attached),
        row("mcast/not-other-groups", "A queue pair gets the datagrams of its groups only", not_other_groups),
        row("mcast/not-after-detach", "After detaching nothing comes in any more", not_after_detach),
        row("mcast/unattached-gets-nothing", "A queue pair that isn't attached gets nothing", unattached_gets_nothing),
        row("mcast/wrong-qkey-is-dropped", "The Q_Key counts for groups too", wrong_qkey),
        row("mcast/several-groups", "A queue pair may be attached to several groups", several_groups),
        row(
            "mcast/without-receivers-is-no-error",
            "A datagram to a group without members completes",
            without_receivers,
        ),
        row("mcast/ud-only", "Only UD queue pairs can be attached: RC is EINVAL", ud_only),
        row("mcast/needs-a-group", "An address that is no multicast address is EINVAL", needs_a_group),
        row(
            "mcast/detach-what-is-not-attached",
            "Detaching a queue pair that isn't attached is refused",
            detach_unattached,
        ),
        row("mcast/attach-twice-is-one", "Attached twice, a queue pair still gets one copy", attach_twice_is_one),
        row(
            "mcast/destroyed-member-is-no-member",
            "A queue pair must be detached before it is destroyed: destroying it is refused, or detaches it",
            destroyed_member,
        ),
    ]
}

fn group(number: u8) -> Gid {
    Gid::ipv4(Ipv4Addr::new(239, 77, 0, number))
}

/// A UD queue pair in RTS with a receive posted.
fn member(rig: &Rig) -> Outcome<Side> {
    let (side, link) = (rig.side(UD, SideSpec::default())?, Link::default());
    side.to_init(&link)?;
    side.to_rtr(0, &link)?;
    side.to_rts(&link)?;
    side.recv(1)?;
    Ok(side)
}

/// Sends from `from` to the group, and waits for the completion.
fn cast(rig: &Rig, from: &Side, group: &Gid, imm: u32, qkey: u32) -> Outcome {
    let ah = rig.group_ah(group)?;
    from.qp.send(Wr::send(imm.into()).imm(imm).to(&ah, GROUP_QPN, qkey))?;
    from.scq.wait_ok().map(drop)
}

fn reaches_an_attached_qp(rig: &Rig) -> Outcome {
    let (from, to) = (member(rig)?, member(rig)?);
    let _joined = rig.join(&group(1))?;
    to.qp.attach(&group(1))?;
    cast(rig, &from, &group(1), 5, Attr::QKEY)?;
    let wc = to.rcq.wait_ok()?;
    same("what arrived", (wc.imm, wc.src_qpn, wc.bytes), (Some(5), from.qp.number(), 40))?;
    Ok(to.qp.detach(&group(1))?)
}

fn reaches_all_attached(rig: &Rig) -> Outcome {
    let (from, to) = (member(rig)?, [member(rig)?, member(rig)?, member(rig)?]);
    let _joined = rig.join(&group(2))?;
    for side in &to {
        side.qp.attach(&group(2))?;
    }
    cast(rig, &from, &group(2), 6, Attr::QKEY)?;
    for side in &to {
        same("what arrived", side.rcq.wait_ok()?.imm, Some(6))?;
    }
    to.iter().try_for_each(|side| Ok(side.qp.detach(&group(2))?))
}

fn not_other_groups(rig: &Rig) -> Outcome {
    let (from, to) = (member(rig)?, member(rig)?);
    let _joined = [rig.join(&group(3))?, rig.join(&group(4))?];
    to.qp.attach(&group(3))?;
    cast(rig, &from, &group(4), 1, Attr::QKEY)?;
    to.rcq.quiet()?;
    cast(rig, &from, &group(3), 2, Attr::QKEY)?;
    same("what arrived", to.rcq.wait_ok()?.imm, Some(2))?;
    Ok(to.qp.detach(&group(3))?)
}

fn not_after_detach(rig: &Rig) -> Outcome {
    let (from, to) = (member(rig)?, member(rig)?);
    let _joined = rig.join(&group(5))?;
    to.qp.attach(&group(5))?;
    cast(rig, &from, &group(5), 1, Attr::QKEY)?;
    to.rcq.wait_ok()?;
    to.recv(2)?;
    to.qp.detach(&group(5))?;
    cast(rig, &from, &group(5), 2, Attr::QKEY)?;
    to.rcq.quiet()
}

fn unattached_gets_nothing(rig: &Rig) -> Outcome {
    let (from, to, other) = (member(rig)?, member(rig)?, member(rig)?);
    let _joined = rig.join(&group(6))?;
    to.qp.attach(&group(6))?;
    cast(rig, &from, &group(6), 1, Attr::QKEY)?;
    to.rcq.wait_ok()?;
    other.rcq.quiet()?;
    Ok(to.qp.detach(&group(6))?)
}

fn wrong_qkey(rig: &Rig) -> Outcome {
    let (from, to) = (member(rig)?, member(rig)?);
    let _joined = rig.join(&group(7))?;
    to.qp.attach(&group(7))?;
    cast(rig, &from, &group(7), 1, Attr::QKEY ^ 1)?;
    to.rcq.quiet()?;
    cast(rig, &from, &group(7), 2, Attr::QKEY)?;
    same("what arrived", to.rcq.wait_ok()?.imm, Some(2))?;
    Ok(to.qp.detach(&group(7))?)
}

fn several_groups(rig: &Rig) -> Outcome {
    let (from, to) = (member(rig)?, member(rig)?);
    let groups = [group(8), group(9), group(10)];
    let mut joined = Vec::new();
    for group in &groups {
        joined.push(rig.join(group)?);
        to.qp.attach(group)?;
    }
    for (imm, group) in (0..).zip(&groups) {
        cast(rig, &from, group, imm, Attr::QKEY)?;
        same("what arrived", to.rcq.wait_ok()?.imm, Some(imm))?;
        to.recv(1)?;
    }
    groups.iter().try_for_each(|group| Ok(to.qp.detach(group)?))
}

fn without_receivers(rig: &Rig) -> Outcome {
    let from = member(rig)?;
    cast(rig, &from, &group(11), 1, Attr::QKEY)?;
    from.rcq.quiet()
}

fn ud_only(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    refused_with("attaching an RC queue pair", pair.a.qp.attach(&group(12)), libc::EINVAL)
}

fn needs_a_group(rig: &Rig) -> Outcome {
    let side = member(rig)?;
    refused_with("attaching to 10.0.0.1", side.qp.attach(&Gid::ipv4(Ipv4Addr::new(10, 0, 0, 1))), libc::EINVAL)
}

fn detach_unattached(rig: &Rig) -> Outcome {
    let (side, other) = (member(rig)?, member(rig)?);
    refused_with("detaching from a group without members", side.qp.detach(&group(13)), libc::EINVAL)?;
    other.qp.attach(&group(13))?;
    refused_with("detaching from a group with another member", side.qp.detach(&group(13)), libc::EINVAL)?;
    Ok(other.qp.detach(&group(13))?)
}

fn attach_twice_is_one(rig: &Rig) -> Outcome {
    let (from, to) = (member(rig)?, member(rig)?);
    to.recv(2)?;
    let _joined = rig.join(&group(14))?;
    to.qp.attach(&group(14))?;
    // The device may refuse that or not.
    let again = to.qp.attach(&group(14));
    cast(rig, &from, &group(14), 1, Attr::QKEY)?;
    to.rcq.wait_ok()?;
    to.rcq.quiet()?;
    to.qp.detach(&group(14))?;
    if again.is_ok() {
        // One detach per attach, or one for all.
        let _ = to.qp.detach(&group(14));
    }
    Ok(())
}

fn destroyed_member(rig: &Rig) -> Outcome {
    let (from, to, other) = (member(rig)?, member(rig)?, member(rig)?);
    let _joined = rig.join(&group(15))?;
    to.qp.attach(&group(15))?;
    other.qp.attach(&group(15))?;
    match to.qp.try_destroy() {
        Ok(()) => {}
        Err(refused) => {
            same("errno", crate::rig::errno_name(refused.errno), "EBUSY".to_owned())?;
            to.qp.detach(&group(15))?;
            to.qp.try_destroy()?;
        }
    }
    cast(rig, &from, &group(15), 1, Attr::QKEY)?;
    same("the other member", other.rcq.wait_ok()?.imm, Some(1))?;
    Ok(other.qp.detach(&group(15))?)
}
