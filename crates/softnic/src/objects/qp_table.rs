//! The queue-pair state table: all transitions, with the attributes that each requires or allows.
//!
//! Guarantees: [`check`] accepts exactly the masks that the kernel's `ib_modify_qp_is_ok` accepts
//! for RC, UC, UD and RAW_PACKET queue pairs (`qp_state_table` in Linux
//! `drivers/infiniband/core/verbs.c`; the minimum lists also stand in `ibv_modify_qp(3)`), and in
//! every state a mask of 0, which modifies nothing. The software RNIC refuses by it. A caller can
//! ask it first to learn *which* attribute is missing; a device only answers `EINVAL`.
//!
//! ```
//! use verbline_softnic::qp_table::{AttrMask, State, Transport, check};
//! let refusal = check(Transport::Rc, State::Init, State::Rtr, AttrMask::STATE | AttrMask::AV).unwrap_err();
//! assert_eq!(
//!     refusal.missing,
//!     AttrMask::PATH_MTU
//!         | AttrMask::DEST_QPN
//!         | AttrMask::RQ_PSN
//!         | AttrMask::MAX_DEST_RD_ATOMIC
//!         | AttrMask::MIN_RNR_TIMER
//! );
//! ```

use rdma_sys::{ibv_qp_attr_mask as bit, ibv_qp_state as raw_state, ibv_qp_type as raw_type};
use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// A set of `IBV_QP_*` attribute bits (`enum ibv_qp_attr_mask`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AttrMask(pub u32);

macro_rules! attributes {
    ($($(#[$doc:meta])* $name:ident = $bit:ident;)*) => {
        impl AttrMask {
            $($(#[$doc])* pub const $name: AttrMask = AttrMask(bit::$bit.0);)*
            const NAMES: &[(AttrMask, &str)] = &[$((AttrMask::$name, stringify!($bit)),)*];
        }
    };
}

attributes! {
    /// `qp_state`: the state to move to.
    STATE = IBV_QP_STATE;
    /// `cur_qp_state`: the state that the caller believes the QP to be in.
    CUR_STATE = IBV_QP_CUR_STATE;
    /// `en_sqd_async_notify`: raise `IBV_EVENT_SQ_DRAINED` once drained.
    EN_SQD_ASYNC_NOTIFY = IBV_QP_EN_SQD_ASYNC_NOTIFY;
    /// `qp_access_flags`: remote operations that the QP lets in.
    ACCESS_FLAGS = IBV_QP_ACCESS_FLAGS;
    /// `pkey_index`.
    PKEY_INDEX = IBV_QP_PKEY_INDEX;
    /// `port_num`.
    PORT = IBV_QP_PORT;
    /// `qkey` (UD).
    QKEY = IBV_QP_QKEY;
    /// `ah_attr`: the primary path.
    AV = IBV_QP_AV;
    /// `path_mtu`.
    PATH_MTU = IBV_QP_PATH_MTU;
    /// `timeout`: the local ACK time-out's exponent.
    TIMEOUT = IBV_QP_TIMEOUT;
    /// `retry_cnt`: retries after a time-out.
    RETRY_CNT = IBV_QP_RETRY_CNT;
    /// `rnr_retry`: retries after a receiver-not-ready; 7 is for ever.
    RNR_RETRY = IBV_QP_RNR_RETRY;
    /// `rq_psn`.
    RQ_PSN = IBV_QP_RQ_PSN;
    /// `max_rd_atomic`: reads and atomics that this QP may have outstanding.
    MAX_QP_RD_ATOMIC = IBV_QP_MAX_QP_RD_ATOMIC;
    /// `alt_ah_attr`, `alt_port_num`, `alt_timeout`, `alt_pkey_index`.
    ALT_PATH = IBV_QP_ALT_PATH;
    /// `min_rnr_timer`: a peer's wait after a receiver-not-ready, coded.
    MIN_RNR_TIMER = IBV_QP_MIN_RNR_TIMER;
    /// `sq_psn`.
    SQ_PSN = IBV_QP_SQ_PSN;
    /// `max_dest_rd_atomic`: reads and atomics that a peer may have outstanding here.
    MAX_DEST_RD_ATOMIC = IBV_QP_MAX_DEST_RD_ATOMIC;
    /// `path_mig_state`.
    PATH_MIG_STATE = IBV_QP_PATH_MIG_STATE;
    /// `cap`: resize the queues.
    CAP = IBV_QP_CAP;
    /// `dest_qp_num`.
    DEST_QPN = IBV_QP_DEST_QPN;
    /// `rate_limit`, in kbit/s.
    RATE_LIMIT = IBV_QP_RATE_LIMIT;
}

impl AttrMask {
    /// No attribute at all.
    pub const NONE: AttrMask = AttrMask(0);

    /// Both sets together. `const`, where `|` can't be.
    pub const fn with(self, other: AttrMask) -> AttrMask {
        AttrMask(self.0 | other.0)
    }

    /// The bits in `self` that are not in `other`.
    pub const fn without(self, other: AttrMask) -> AttrMask {
        AttrMask(self.0 & !other.0)
    }

    /// Whether every bit of `other` is set.
    pub const fn contains(self, other: AttrMask) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether no bit is set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for AttrMask {
    type Output = AttrMask;
    fn bitor(self, other: AttrMask) -> AttrMask {
        self.with(other)
    }
}

impl BitOrAssign for AttrMask {
    fn bitor_assign(&mut self, other: AttrMask) {
        *self = self.with(other);
    }
}

impl fmt::Display for AttrMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("no attribute");
        }
        let mut rest = *self;
        let mut separator = "";
        for &(mask, name) in AttrMask::NAMES {
            if self.contains(mask) {
                write!(f, "{separator}{name}")?;
                separator = ", ";
                rest = rest.without(mask);
            }
        }
        if !rest.is_empty() {
            write!(f, "{separator}unknown bits {:#x}", rest.0)?;
        }
        Ok(())
    }
}

/// The transport service type of a QP. It decides which operations the QP may post.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Whole Ethernet frames, on cards that support them. Creating such a QP takes CAP_NET_RAW.
    RawPacket,
}

impl Transport {
    /// Converts from `enum ibv_qp_type`; `None` for XRC and driver types, which the table has no
    /// rows for.
    pub const fn from_raw(qp_type: raw_type::Type) -> Option<Transport> {
        match qp_type {
            raw_type::IBV_QPT_RC => Some(Transport::Rc),
            raw_type::IBV_QPT_UC => Some(Transport::Uc),
            raw_type::IBV_QPT_UD => Some(Transport::Ud),
            raw_type::IBV_QPT_RAW_PACKET => Some(Transport::RawPacket),
            _ => None,
        }
    }

    /// As `enum ibv_qp_type`.
    pub const fn raw(self) -> raw_type::Type {
        match self {
            Transport::Rc => raw_type::IBV_QPT_RC,
            Transport::Uc => raw_type::IBV_QPT_UC,
            Transport::Ud => raw_type::IBV_QPT_UD,
            Transport::RawPacket => raw_type::IBV_QPT_RAW_PACKET,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Rc => "RC",
            Transport::Uc => "UC",
            Transport::Ud => "UD",
            Transport::RawPacket => "RAW_PACKET",
        })
    }
}

/// A queue pair's state (`enum ibv_qp_state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum State {
    /// Just created, or reset: nothing can be posted.
    #[default]
    Reset = raw_state::IBV_QPS_RESET,
    /// Receives can be posted, nothing is received.
    Init = raw_state::IBV_QPS_INIT,
    /// Ready to receive.
    Rtr = raw_state::IBV_QPS_RTR,
    /// Ready to send.
    Rts = raw_state::IBV_QPS_RTS,
    /// Sends are accepted and held.
    Sqd = raw_state::IBV_QPS_SQD,
    /// The send queue failed (UC and UD); the receive queue works on.
    Sqe = raw_state::IBV_QPS_SQE,
    /// Everything posted is flushed.
    Err = raw_state::IBV_QPS_ERR,
}

impl State {
    /// Every state, in the order of `enum ibv_qp_state`.
    pub const ALL: [State; 7] = [State::Reset, State::Init, State::Rtr, State::Rts, State::Sqd, State::Sqe, State::Err];

    /// Converts from `enum ibv_qp_state`; `None` for other numbers.
    pub const fn from_raw(state: raw_state::Type) -> Option<State> {
        if (state as usize) < State::ALL.len() { Some(State::ALL[state as usize]) } else { None }
    }

    /// As `enum ibv_qp_state`.
    pub const fn raw(self) -> raw_state::Type {
        self as raw_state::Type
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Reset => "RESET",
            State::Init => "INIT",
            State::Rtr => "RTR",
            State::Rts => "RTS",
            State::Sqd => "SQD",
            State::Sqe => "SQE",
            State::Err => "ERR",
        })
    }
}

/// The attributes of one transition for one transport, beside `IBV_QP_STATE` itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Must all be given.
    pub required: AttrMask,
    /// May be given.
    pub optional: AttrMask,
}

impl Attributes {
    const NONE: Attributes = Attributes { required: AttrMask::NONE, optional: AttrMask::NONE };

    const fn required(required: AttrMask) -> Attributes {
        Attributes { required, optional: AttrMask::NONE }
    }

    const fn optional(optional: AttrMask) -> Attributes {
        Attributes { required: AttrMask::NONE, optional }
    }
}

/// One row: an existing transition, and its attributes for each transport.
#[derive(Clone, Copy, Debug)]
pub struct Transition {
    /// The state before.
    pub from: State,
    /// The state after.
    pub to: State,
    /// The attributes of an RC queue pair.
    pub rc: Attributes,
    /// The attributes of a UC queue pair.
    pub uc: Attributes,
    /// The attributes of a UD queue pair.
    pub ud: Attributes,
    /// The attributes of a RAW_PACKET queue pair.
    pub raw_packet: Attributes,
}

impl Transition {
    /// The attributes of the transition for `transport`.
    pub const fn attributes(&self, transport: Transport) -> Attributes {
        match transport {
            Transport::Rc => self.rc,
            Transport::Uc => self.uc,
            Transport::Ud => self.ud,
            Transport::RawPacket => self.raw_packet,
        }
    }

    const fn bare(from: State, to: State) -> Transition {
        Transition::optional(from, to, [AttrMask::NONE; 4])
    }

    /// A transition that requires nothing, with the optional attributes of each transport.
    const fn optional(from: State, to: State, [rc, uc, ud, raw_packet]: [AttrMask; 4]) -> Transition {
        let [rc, uc] = [Attributes::optional(rc), Attributes::optional(uc)];
        let [ud, raw_packet] = [Attributes::optional(ud), Attributes::optional(raw_packet)];
        Transition { from, to, rc, uc, ud, raw_packet }
    }
}

/// Every transition, from the kernel's `qp_state_table`. A queue pair can't move between other
/// pairs of states.
pub const TABLE: &[Transition] = &{
    use AttrMask as A;
    use Attributes as At;
    use State::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};

    const PKEY_PORT_ACCESS: AttrMask = A::PKEY_INDEX.with(A::PORT).with(A::ACCESS_FLAGS);
    const PKEY_PORT_QKEY: AttrMask = A::PKEY_INDEX.with(A::PORT).with(A::QKEY);
    const CONNECT_UC: AttrMask = A::AV.with(A::PATH_MTU).with(A::DEST_QPN).with(A::RQ_PSN);
    const CONNECT_RC: AttrMask = CONNECT_UC.with(A::MAX_DEST_RD_ATOMIC).with(A::MIN_RNR_TIMER);
    const TO_RTR: AttrMask = A::ALT_PATH.with(A::ACCESS_FLAGS).with(A::PKEY_INDEX);
    const TO_RTS_UC: AttrMask = A::CUR_STATE.with(A::ALT_PATH).with(A::ACCESS_FLAGS).with(A::PATH_MIG_STATE);
    const TO_RTS_RC: AttrMask = TO_RTS_UC.with(A::MIN_RNR_TIMER);
    const TO_RTS_UD: AttrMask = A::CUR_STATE.with(A::QKEY);
    const IN_SQD_UC: AttrMask =
        A::AV.with(A::ALT_PATH).with(A::ACCESS_FLAGS).with(A::PKEY_INDEX).with(A::PATH_MIG_STATE);
    const IN_SQD_RC: AttrMask = IN_SQD_UC
        .with(A::PORT)
        .with(A::TIMEOUT)
        .with(A::RETRY_CNT)
        .with(A::RNR_RETRY)
        .with(A::MAX_QP_RD_ATOMIC)
        .with(A::MAX_DEST_RD_ATOMIC)
        .with(A::MIN_RNR_TIMER);

    [
        Transition::bare(Reset, Reset),
        Transition {
            from: Reset,
            to: Init,
            rc: At::required(PKEY_PORT_ACCESS),
            uc: At::required(PKEY_PORT_ACCESS),
            ud: At::required(PKEY_PORT_QKEY),
            raw_packet: At::required(A::PORT),
        },
        Transition::bare(Init, Reset),
        Transition::bare(Init, Err),
        Transition::optional(Init, Init, [PKEY_PORT_ACCESS, PKEY_PORT_ACCESS, PKEY_PORT_QKEY, A::NONE]),
        Transition {
            from: Init,
            to: Rtr,
            rc: At { required: CONNECT_RC, optional: TO_RTR },
            uc: At { required: CONNECT_UC, optional: TO_RTR },
            ud: At::optional(A::PKEY_INDEX.with(A::QKEY)),
            raw_packet: At::NONE,
        },
        Transition::bare(Rtr, Reset),
        Transition::bare(Rtr, Err),
        Transition {
            from: Rtr,
            to: Rts,
            rc: At {
                required: A::SQ_PSN.with(A::TIMEOUT).with(A::RETRY_CNT).with(A::RNR_RETRY).with(A::MAX_QP_RD_ATOMIC),
                optional: TO_RTS_RC,
            },
            uc: At { required: A::SQ_PSN, optional: TO_RTS_UC },
            ud: At { required: A::SQ_PSN, optional: TO_RTS_UD },
            raw_packet: At::optional(A::RATE_LIMIT),
        },
        Transition::bare(Rts, Reset),
        Transition::bare(Rts, Err),
        Transition::optional(Rts, Rts, [TO_RTS_RC, TO_RTS_UC, TO_RTS_UD, A::RATE_LIMIT]),
        Transition::optional(
            Rts,
            Sqd,
            [A::EN_SQD_ASYNC_NOTIFY, A::EN_SQD_ASYNC_NOTIFY, A::EN_SQD_ASYNC_NOTIFY, A::NONE],
        ),
        Transition::bare(Sqd, Reset),
        Transition::bare(Sqd, Err),
        Transition::optional(Sqd, Rts, [TO_RTS_RC, TO_RTS_UC, TO_RTS_UD, A::NONE]),
        Transition::optional(Sqd, Sqd, [IN_SQD_RC, IN_SQD_UC, A::PKEY_INDEX.with(A::QKEY), A::NONE]),
        Transition::bare(Sqe, Reset),
        Transition::bare(Sqe, Err),
        Transition::optional(Sqe, Rts, [A::NONE, A::CUR_STATE.with(A::ACCESS_FLAGS), TO_RTS_UD, A::NONE]),
        Transition::bare(Err, Reset),
        Transition::bare(Err, Err),
    ]
};

/// The row from `from` to `to`, if that transition exists.
pub fn transition(from: State, to: State) -> Option<&'static Transition> {
    TABLE.iter().find(|row| row.from == from && row.to == to)
}

/// The reason why a modification is refused. A refused one changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The queue pair's transport.
    pub transport: Transport,
    /// The current state.
    pub from: State,
    /// The requested state.
    pub to: State,
    /// Whether the table has this transition. If not, the masks below are empty.
    pub exists: bool,
    /// Required attributes that the mask lacks.
    pub missing: AttrMask,
    /// Attributes in the mask that this transition doesn't take.
    pub not_allowed: AttrMask,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { transport, from, to, .. } = self;
        if !self.exists {
            let reachable: Vec<_> =
                TABLE.iter().filter(|row| row.from == *from).map(|row| row.to.to_string()).collect();
            let reachable = reachable.join(", ");
            return write!(f, "{transport} queue pair: no transition {from} -> {to}; from {from} go to {reachable}");
        }
        write!(f, "{transport} queue pair, {from} -> {to}:")?;
        if !self.missing.is_empty() {
            write!(f, " missing {}", self.missing)?;
        }
        if !self.not_allowed.is_empty() {
            let also = if self.missing.is_empty() { "" } else { ";" };
            write!(f, "{also} not allowed here {}", self.not_allowed)?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}

/// Checks whether a queue pair of `transport` may move from `from` to `to` with the attributes of
/// `mask`. With `IBV_QP_CUR_STATE`, `from` is the state that the caller assumes.
///
/// `mask` may or may not contain `IBV_QP_STATE`: a modification without it is a transition from a
/// state to itself. `IBV_QP_CUR_STATE` is accepted only in RTR, RTS, SQD and SQE, as in the kernel.
pub fn check(transport: Transport, from: State, to: State, mask: AttrMask) -> Result<(), Refusal> {
    if mask.is_empty() && from == to {
        return Ok(());
    }
    let refused = |exists, missing, not_allowed| Refusal { transport, from, to, exists, missing, not_allowed };
    let Some(row) = transition(from, to) else {
        return Err(refused(false, AttrMask::NONE, AttrMask::NONE));
    };
    let Attributes { required, optional } = row.attributes(transport);
    let missing = required.without(mask);
    let mut not_allowed = mask.without(required | optional | AttrMask::STATE);
    if !matches!(from, State::Rtr | State::Rts | State::Sqd | State::Sqe) && mask.contains(AttrMask::CUR_STATE) {
        not_allowed |= AttrMask::CUR_STATE;
    }
    if missing.is_empty() && not_allowed.is_empty() {
        return Ok(());
    }
    Err(refused(true, missing, not_allowed))
}
