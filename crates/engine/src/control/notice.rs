//! Notices to lcores, and the meaning of a device's asynchronous events to a plan.
//!
//! A failed queue pair takes its port down, and the event is the reason. A completion queue that
//! overran, or a device that is gone, ends the lcore: none of its work can go on, and the run fails
//! with the cause. A link that goes down or comes up is recorded, and the stages are told;
//! completions and peers show whether anything was lost.

use std::sync::Arc;

use verbline_verbs::event::AsyncEventKind;

use crate::control::change::Change;

/// A notice in an lcore's inbox ([`crate::control::run_control`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The queue pair of a port has failed, if the port still has this one. `port` is its index on
    /// the lcore.
    QpFailed { port: usize, qpn: u32, event: AsyncEventKind },
    /// Change the attributes of the port's queue pair; on a repeated request, check whether its
    /// send queue is drained.
    Change { port: usize, change: Arc<Change> },
    /// The device has stopped the send queue of a queue pair, if this port has it.
    SqStopped { port: usize, qpn: u32 },
    /// The queue pair of a port, if it is this one, has moved to its alternate path; or could not.
    PathMigrated { port: usize, qpn: u32, is_done: bool },
    /// A port of the lcore itself has gone down, as its completions show: for the stages to know.
    PortDown { port: usize },
    /// The port's cm thread, or the port itself, has posted messages to their
    /// [`crate::connection::cm_mailbox`]. Ports with many connections are numbered after the
    /// others. On a UD port: address handles of its senders were made.
    Connections { port: usize },
    /// A capture or a trace begins or ends: its desk holds the lcore's part.
    Watch,
    /// A stage of the lcore that a ring held back may run again, and is to hear of past events.
    LetGo,
    /// The link under all ports of the lcore changed.
    LinkChanged { up: bool },
    /// The lcore's completion queue has lost completions.
    CqOverrun,
    /// The device is gone, or about to go; the whole sentence.
    DeviceGone(String),
}

/// The meaning of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventMeaning {
    /// None: the event is only counted.
    Nothing,
    /// The port of this QP is lost.
    QpFailed,
    /// The send queue of this QP is drained, or has stopped at a bad block.
    SqStopped,
    /// This QP has moved to its alternate path, or could not.
    PathMigrated { is_done: bool },
    /// The lcore of this CQ is lost.
    CqOverrun,
    /// The device's port lost its link, or has it again.
    LinkChanged { up: bool },
    /// Everything on the device is lost.
    DeviceGone,
}

impl EventMeaning {
    /// By ibv_get_async_event(3). The engine arms no SRQ limit: such an event is for another user
    /// of the device.
    pub(crate) fn of(kind: AsyncEventKind) -> EventMeaning {
        use AsyncEventKind as Kind;
        match kind {
            Kind::QpFatal | Kind::QpReqErr | Kind::QpAccessErr => EventMeaning::QpFailed,
            Kind::SqDrained => EventMeaning::SqStopped,
            Kind::PathMig => EventMeaning::PathMigrated { is_done: true },
            Kind::PathMigErr => EventMeaning::PathMigrated { is_done: false },
            Kind::CqErr => EventMeaning::CqOverrun,
            Kind::PortErr => EventMeaning::LinkChanged { up: false },
            Kind::PortActive => EventMeaning::LinkChanged { up: true },
            Kind::DeviceFatal => EventMeaning::DeviceGone,
            _ => EventMeaning::Nothing,
        }
    }
}

/// Whether an event belongs to the ordinary life of a queue pair, and needs no warning in the log.
pub(crate) fn is_ordinary(kind: AsyncEventKind) -> bool {
    use AsyncEventKind as Kind;
    matches!(kind, Kind::CommEst | Kind::SqDrained | Kind::QpLastWqeReached | Kind::PortActive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_to_an_lcore_is_told_from_what_is_counted() {
        use AsyncEventKind as Kind;
        assert_eq!(EventMeaning::of(Kind::QpAccessErr), EventMeaning::QpFailed);
        assert_eq!(EventMeaning::of(Kind::CqErr), EventMeaning::CqOverrun);
        assert_eq!(EventMeaning::of(Kind::PortErr), EventMeaning::LinkChanged { up: false });
        assert_eq!(EventMeaning::of(Kind::PortActive), EventMeaning::LinkChanged { up: true });
        assert_eq!(EventMeaning::of(Kind::DeviceFatal), EventMeaning::DeviceGone);
        assert_eq!(EventMeaning::of(Kind::SqDrained), EventMeaning::SqStopped);
        for kind in [Kind::CommEst, Kind::QpLastWqeReached, Kind::GidChange] {
            assert_eq!(EventMeaning::of(kind), EventMeaning::Nothing);
        }
    }
}
