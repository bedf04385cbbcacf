//! `ibv_modify_qp(3)` by table: every transition of a transport, with every attribute.
//!
//! The lists of required attributes are the page's own, written out by the themes. The transitions
//! and their optional attributes are those of the kernel's `qp_state_table`, from
//! `verbline_softnic::qp_table`: on a kernel device these rows check that table against the kernel.

use super::common::*;
use crate::check::{During, Failure, Outcome, ensure, same};
use crate::rig::{Attr, AttrMask, Cap, Link, Qp, Refused, Rig, Side, SideSpec, State, Status, Transport, Wr};
use crate::suite::Row;
use verbline_softnic::qp_table::{self, Transition};

/// Every attribute but `IBV_QP_STATE`.
const ATTRIBUTES: [AttrMask; 21] = [
    AttrMask::CUR_STATE,
    AttrMask::EN_SQD_ASYNC_NOTIFY,
    AttrMask::ACCESS_FLAGS,
    AttrMask::PKEY_INDEX,
    AttrMask::PORT,
    AttrMask::QKEY,
    AttrMask::AV,
    AttrMask::PATH_MTU,
    AttrMask::TIMEOUT,
    AttrMask::RETRY_CNT,
    AttrMask::RNR_RETRY,
    AttrMask::RQ_PSN,
    AttrMask::MAX_QP_RD_ATOMIC,
    AttrMask::ALT_PATH,
    AttrMask::MIN_RNR_TIMER,
    AttrMask::SQ_PSN,
    AttrMask::MAX_DEST_RD_ATOMIC,
    AttrMask::PATH_MIG_STATE,
    AttrMask::CAP,
    AttrMask::DEST_QPN,
    AttrMask::RATE_LIMIT,
];

/// The page's lists for RESET to INIT, INIT to RTR and RTR to RTS, beside `IBV_QP_STATE`.
pub(super) struct Page {
    pub(super) init: &'static [AttrMask],
    pub(super) rtr: &'static [AttrMask],
    pub(super) rts: &'static [AttrMask],
}

impl Page {
    fn steps(&self) -> [(State, State, &'static [AttrMask]); 3] {
        [
            (State::Reset, State::Init, self.init),
            (State::Init, State::Rtr, self.rtr),
            (State::Rtr, State::Rts, self.rts),
        ]
    }
}

/// Every row of a transport that follows from the tables.
pub(super) fn rows(transport: Transport, page: &Page) -> Vec<Row> {
    let mut rows = Vec::new();
    for (from, to, required) in page.steps() {
        rows.push(required_row(transport, from, to, required));
    }
    for transition in qp_table::TABLE.iter().filter(|row| reachable(transport, row.from)) {
        if !transition.attributes(transport).optional.is_empty() {
            rows.push(optional_row(transport, transition));
        }
        rows.push(others_row(transport, transition));
    }
    let from = State::ALL.into_iter().filter(|&from| reachable(transport, from));
    rows.extend(from.clone().map(|from| absent_row(transport, from)));
    rows.extend(from.map(|from| mask_0_row(transport, from)));
    rows
}

/// The same checks in fewer rows, for a transport that few devices have.
pub(super) fn few_rows(transport: Transport, page: &Page) -> Vec<Row> {
    let all = rows(transport, page);
    let (some, rest): (Vec<Row>, Vec<Row>) =
        all.into_iter().partition(|row| row.rule.ends_with("-needs") || row.rule.ends_with("-takes"));
    let says = format!("{transport}: every other transition takes what the table lists and refuses all else");
    let whole = Row::new(format!("modify_{}/rest-of-the-table", name(transport)), page::MODIFY_QP, says, move |rig| {
        rest.iter().try_for_each(|row| row.test(rig).during(&row.rule))
    });
    some.into_iter().chain([declared(whole, transport, State::Reset)]).collect()
}

/// RC and RAW_PACKET queue pairs never get to SQE.
fn reachable(transport: Transport, state: State) -> bool {
    state != State::Sqe || matches!(transport, Transport::Uc | Transport::Ud)
}

fn rule(transport: Transport, from: State, to: State, what: &str) -> String {
    let text = format!("modify_{}/{from}-to-{to}-{what}", name(transport));
    text.to_lowercase()
}

/// Declares that rows starting in SQE are lacked on rdma_rxe, and all of RAW_PACKET where a device
/// has none.
fn declared(row: Row, transport: Transport, from: State) -> Row {
    let row = if transport == Transport::RawPacket { row.needs(Cap::RawPacket) } else { row };
    let (seen, does, why) = RXE_NO_SQE;
    if from == State::Sqe { row.rxe(seen, does, why) } else { row }
}

fn required_row(transport: Transport, from: State, to: State, required: &'static [AttrMask]) -> Row {
    let list = required.iter().fold(AttrMask::STATE, |all, &bit| all | bit);
    let says = format!(
        "{transport}, {from} to {to}: {list} must be given: without any one of them it is refused and nothing changes"
    );
    let row = Row::new(rule(transport, from, to, "needs"), page::MODIFY_QP, says, move |rig| {
        needs_each(rig, transport, from, to, required)
    });
    declared(row, transport, from)
}

fn optional_row(transport: Transport, transition: &'static Transition) -> Row {
    let Transition { from, to, .. } = *transition;
    let optional = transition.attributes(transport).optional;
    let says = format!("{transport}, {from} to {to}: {optional} may be given, each");
    let row = Row::new(rule(transport, from, to, "takes"), page::MODIFY_QP, says, move |rig| {
        takes_optional(rig, transport, transition)
    });
    declared(row, transport, from)
}

fn others_row(transport: Transport, transition: &'static Transition) -> Row {
    let Transition { from, to, .. } = *transition;
    let says = format!(
        "{transport}, {from} to {to}: any attribute beside the required and the optional ones, and those that the \
         device has a capability for, is refused and nothing changes; without them it is done"
    );
    let row = Row::new(rule(transport, from, to, "refuses-others"), page::MODIFY_QP, says, move |rig| {
        refuses_others(rig, transport, transition)
    });
    declared(row, transport, from)
}

fn absent_row(transport: Transport, from: State) -> Row {
    let absent: Vec<State> = State::ALL.into_iter().filter(|&to| qp_table::transition(from, to).is_none()).collect();
    let says = format!("{transport}: from {from} there is no way to {absent:?}: refused, and nothing changes");
    let rule = format!("modify_{}/{}-goes-nowhere-else", name(transport), from.to_string().to_lowercase());
    let row = Row::new(rule, page::MODIFY_QP, says, move |rig| goes_nowhere_else(rig, transport, from, &absent));
    declared(row, transport, from)
}

fn mask_0_row(transport: Transport, from: State) -> Row {
    let says = format!("{transport} in {from}: attr_mask may be 0, and nothing is modified");
    let rule = format!("modify_{}/{}-mask-0-changes-nothing", name(transport), from.to_string().to_lowercase());
    let row = Row::new(rule, page::MODIFY_QP, says, move |rig| {
        let side = at(rig, transport, from)?;
        let before = side.qp.query()?;
        side.qp.modify(&side.qp.attr(0).to(State::Err).masked(AttrMask::NONE)).during("a mask of 0")?;
        same("changed attributes", before.changes(&side.qp.query()?), vec![])
    });
    let row = match from {
        State::Rtr => row.rxe(
            "a mask of 0: ibv_modify_qp answered EINVAL",
            "a mask of 0 is refused in RTR",
            "kernel limit: qp_state_table has no way from RTR to RTR, and ib_modify_qp_is_ok() looks for one",
        ),
        _ => row,
    };
    declared(row, transport, from)
}

/// A queue pair in `state` that is its own peer.
pub(super) fn at(rig: &Rig, transport: Transport, state: State) -> Outcome<Side> {
    let side = rig.side(transport, SideSpec::default())?;
    let (link, own) = (Link::default(), side.qp.number());
    if state == State::Reset {
        return Ok(side);
    }
    side.to_init(&link)?;
    if state == State::Err {
        side.qp.to_err()?;
    }
    if matches!(state, State::Init | State::Err) {
        return Ok(side);
    }
    side.to_rtr(own, &link)?;
    if state == State::Rtr {
        return Ok(side);
    }
    side.to_rts(&link)?;
    match state {
        State::Sqd => to_sqd(&side.qp)?,
        State::Sqe => fail_send_queue(rig, &side)?,
        _ => {}
    }
    Ok(side)
}

fn fail_send_queue(rig: &Rig, side: &Side) -> Outcome {
    let mut wr = Wr::send(1).sge(out_of_bounds(&side.mr));
    if side.qp.transport() == Transport::Ud {
        wr = wr.to(&rig.ah()?, side.qp.number(), Attr::QKEY);
    }
    side.qp.send(wr)?;
    same("the failing send's status", side.scq.wait_one()?.status, Status::LOC_PROT_ERR)?;
    side.qp.expect_state(State::Sqe)
}

/// Valid values of all attributes, to `to`, with this mask beside `IBV_QP_STATE`.
fn request(side: &Side, from: State, to: State, mask: AttrMask) -> Attr {
    side.qp.attr(side.qp.number()).to(to).cur_state(from).masked(mask | AttrMask::STATE)
}

/// Checks that the modification is refused and changes nothing.
pub(super) fn is_refused(qp: &Qp, what: impl std::fmt::Display, attr: &Attr) -> Outcome<Refused> {
    let before = qp.query()?;
    let outcome = qp.modify(attr);
    let changes = before.changes(&qp.query()?);
    same(format_args!("{what}: changed attributes"), changes, vec![])?;
    outcome.err().ok_or_else(|| Failure::new(format!("{what}: expected a refusal, it was taken")))
}

/// Checks that the modification is done, and that the state is `to`.
fn is_taken(qp: &Qp, what: impl std::fmt::Display, attr: &Attr, to: State) -> Outcome {
    qp.modify(attr).map_err(|refused| Failure::from(refused).during(&what))?;
    same(format_args!("{what}: the state"), qp.state()?, to)
}

fn needs_each(rig: &Rig, transport: Transport, from: State, to: State, required: &[AttrMask]) -> Outcome {
    let side = at(rig, transport, from)?;
    let all = required.iter().fold(AttrMask::NONE, |all, &bit| all | bit);
    for &bit in required {
        is_refused(&side.qp, format_args!("without {bit}"), &request(&side, from, to, all.without(bit)))?;
    }
    let stays = request(&side, from, to, all).masked(all);
    match required {
        // A mask of 0, which has rows of its own.
        [] => drop(side.qp.modify(&stays)),
        _ => drop(is_refused(&side.qp, "without IBV_QP_STATE", &stays)?),
    }
    side.qp.expect_state(from)?;
    is_taken(&side.qp, "with all", &request(&side, from, to, all), to)
}

fn takes_optional(rig: &Rig, transport: Transport, transition: &Transition) -> Outcome {
    let (from, to, attributes) = (transition.from, transition.to, transition.attributes(transport));
    // Except UC in SQD, which has a row of its own, because kernels refuse it.
    let mut optional = attributes.optional;
    if (transport, from, to) == (Transport::Uc, State::Sqd, State::Sqd) {
        optional = optional.without(AttrMask::AV);
    }
    for bit in ATTRIBUTES.into_iter().filter(|&bit| optional.contains(bit)) {
        let side = at(rig, transport, from)?;
        let attr = request(&side, from, to, attributes.required | bit);
        if bit == AttrMask::ALT_PATH && !rig.context().has(Cap::AlternatePath) {
            is_refused(&side.qp, format_args!("{bit} where there are no alternate paths"), &attr)?;
        } else if bit == AttrMask::PATH_MIG_STATE && !rig.context().has(Cap::AlternatePath) {
            // Every queue pair without an alternate path is MIGRATED: a device may accept that
            // value or not.
            let _ = side.qp.modify(&attr);
        } else {
            is_taken(&side.qp, format_args!("with {bit}"), &attr, to)?;
        }
    }
    Ok(())
}

fn refuses_others(rig: &Rig, transport: Transport, transition: &Transition) -> Outcome {
    let (from, to, attributes) = (transition.from, transition.to, transition.attributes(transport));
    let side = at(rig, transport, from)?;
    let mut allowed = attributes.required | attributes.optional;
    // These depend on a capability alone, whatever the table says: the device may accept them, on
    // some transitions or on all, or refuse them.
    for (cap, bit) in [(Cap::ResizeQp, AttrMask::CAP), (Cap::RateLimit(transport), AttrMask::RATE_LIMIT)] {
        if rig.context().has(cap) {
            allowed |= bit;
        }
    }
    for bit in ATTRIBUTES.into_iter().filter(|&bit| !allowed.contains(bit)) {
        is_refused(&side.qp, format_args!("with {bit}"), &request(&side, from, to, attributes.required | bit))?;
    }
    is_taken(&side.qp, "without", &request(&side, from, to, attributes.required), to)
}

fn goes_nowhere_else(rig: &Rig, transport: Transport, from: State, absent: &[State]) -> Outcome {
    let side = at(rig, transport, from)?;
    for &to in absent {
        is_refused(&side.qp, format_args!("to {to}"), &request(&side, from, to, AttrMask::NONE))?;
        // With the attributes that any transition to that state requires.
        for transition in qp_table::TABLE.iter().filter(|row| row.to == to) {
            let mask = transition.attributes(transport).required;
            is_refused(&side.qp, format_args!("to {to} with {mask}"), &request(&side, from, to, mask))?;
        }
    }
    ensure(!absent.is_empty(), "some state can't be reached")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{modify_raw, modify_rc, modify_uc, modify_ud};

    /// The page agrees with the table that both devices follow.
    #[test]
    fn the_page_requires_what_the_table_requires() {
        let pages = [
            (Transport::Rc, modify_rc::PAGE),
            (Transport::Uc, modify_uc::PAGE),
            (Transport::Ud, modify_ud::PAGE),
            (Transport::RawPacket, modify_raw::PAGE),
        ];
        for (transport, page) in pages {
            for (from, to, required) in page.steps() {
                let table = qp_table::transition(from, to).expect("a transition").attributes(transport).required;
                let page = required.iter().fold(AttrMask::NONE, |all, &bit| all | bit);
                assert_eq!(page, table, "{transport}, {from} to {to}");
            }
        }
    }
}
