//! Notices to lcores, and the meaning of a device's asynchronous events to a plan.
//!
//! A queue pair that failed takes its port down, and the event is the reason. A completion queue
//! that overran, or a device that is gone, ends the lcore: nothing it does can go on, and the run
//! fails with the cause. A link that goes down or comes up is recorded, and the stages are told;
//! completions and peers tell whether anything was lost.

use std::sync::Arc;

use verbline_verbs::event::AsyncEventKind;

use crate::control::change::Change;

/// A notice in an lcore's inbox ([`crate::control::run_control`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The queue pair of a port has failed, if it is still this one. The port's place is that among
    /// the lcore's.
    QpFailed { port: usize, qpn: u32, event: AsyncEventKind },
    /// The port's queue pair is to have other attributes; or, asked again, look whether its send
    /// queue is drained.
    Change { port: usize, change: Arc<Change> },
    /// The device has stopped the send queue of a queue pair, if it is one of this port.
    SqStopped { port: usize, qpn: u32 },
    /// The queue pair of a port, if it is this one, goes by its alternate path; or could not.
    PathMigrated { port: usize, qpn: u32, is_done: bool },
    /// A port of the lcore itself has gone down, by what its completions say: for the stages to
    /// know.
    PortDown { port: usize },
    /// The thread that makes the port's connections, or the port itself, has something to say:
    /// their [`crate::connection::cm_mailbox`] has what. Ports with many have their places behind
    /// the others. Of a UD port: address handles of its senders were made.
    Connections { port: usize },
    /// A capture or a trace begins or ends: its desk has what the lcore is to have.
    Watch,
    /// A stage of the lcore may run again that a ring held back, and is to be told what happened.
    LetGo,
    /// The link under all ports of the lcore.
    LinkChanged { up: bool },
    /// The lcore's completion queue has lost completions.
    CqOverrun,
    /// The device is gone, or is to go; the whole sentence.
    DeviceGone(String),
}

/// What an event asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventMeaning {
    /// Nothing: it is counted.
    Nothing,
    /// The port of this QP is lost.
    QpFailed,
    /// The send queue of this QP is drained, or has stopped behind a bad block.
    SqStopped,
    /// This QP has gone over to its alternate path, or could not.
    PathMigrated { is_done: bool },
    /// The lcore of this CQ is lost.
    CqOverrun,
    /// The device's port lost its link, or has it again.
    LinkChanged { up: bool },
    /// Everything on the device is lost.
    DeviceGone,
}

impl EventMeaning {
    /// By ibv_get_async_event(3). The engine arms no limit of an SRQ: its event is somebody else's.
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
