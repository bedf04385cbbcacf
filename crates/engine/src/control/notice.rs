//! What devices say without being asked, and what it means to the plan: which port, which lcore, and what they do about it.
//!
//! A queue pair that failed takes its port down, with the event as the reason. A completion queue that overran, or a device that
//! is gone, ends the lcore: nothing that it does can go on, and the run fails and says why. A link that goes down or up is
//! noted, and the stages are told; whether anything was lost by it, completions and peers will say.

use verbline_verbs::{AsyncEventKind, Status};

/// What an lcore is told by its inbox ([`crate::control::run_control`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The queue pair of a port has failed, if it is still this one. The port's place is that among the lcore's.
    Failed { port: usize, qpn: u32, event: AsyncEventKind },
    /// A port of the lcore itself has gone down, by what its completions say: for the stages to know.
    Fell { port: usize },
    /// The connection of a port is lost, or made again: the port's seat has more ([`crate::connection::handover`]).
    Connection { port: usize },
    /// The link under all ports of the lcore.
    Link { up: bool },
    /// The lcore's completion queue has lost completions.
    Overrun,
    /// The device is gone, or is to go; the whole sentence.
    Gone(String),
}

/// What an event asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Nothing: it is counted.
    Nothing,
    /// The port of this QP is lost.
    Failed,
    /// The lcore of this CQ is lost.
    Overrun,
    /// The device's port lost its link, or has it again.
    Link { up: bool },
    /// Everything on the device is lost.
    Gone,
}

impl Meaning {
    /// By ibv_get_async_event(3). The engine has no SRQ and loads no alternate path, so that their events are somebody else's.
    pub(crate) fn of(kind: AsyncEventKind) -> Meaning {
        use AsyncEventKind as Kind;
        match kind {
            Kind::QpFatal | Kind::QpReqErr | Kind::QpAccessErr => Meaning::Failed,
            Kind::CqErr => Meaning::Overrun,
            Kind::PortErr => Meaning::Link { up: false },
            Kind::PortActive => Meaning::Link { up: true },
            Kind::DeviceFatal => Meaning::Gone,
            _ => Meaning::Nothing,
        }
    }
}

/// Whether an event belongs to the ordinary life of a queue pair, and nobody needs to be told in the log.
pub(crate) fn is_ordinary(kind: AsyncEventKind) -> bool {
    use AsyncEventKind as Kind;
    matches!(kind, Kind::CommEst | Kind::SqDrained | Kind::QpLastWqeReached | Kind::PortActive)
}

/// Why a port went down, as the number that its counters keep; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reason(u64);

impl Reason {
    /// Receives could not be posted.
    pub(crate) const REFUSED: Reason = Reason(1);
    /// The lcore's completion queue overran.
    pub(crate) const OVERRUN: Reason = Reason(2);
    /// The device is gone.
    pub(crate) const GONE: Reason = Reason(3);
    /// The connection manager says that the connection is over.
    pub(crate) const LOST: Reason = Reason(4);
    const STATUSES: u64 = 0x100;
    const EVENTS: [(AsyncEventKind, u64); 3] =
        [(AsyncEventKind::QpFatal, 0x200), (AsyncEventKind::QpReqErr, 0x201), (AsyncEventKind::QpAccessErr, 0x202)];

    pub(crate) fn of_status(status: Status) -> Reason {
        Reason(Reason::STATUSES + u64::from(status.raw().min(0xff)))
    }

    pub(crate) fn of_event(kind: AsyncEventKind) -> Reason {
        let known = Reason::EVENTS.iter().find(|(known, _)| *known == kind);
        Reason(known.map_or(Reason::EVENTS[0].1, |(_, number)| *number))
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// Whether a later reason tells more: what was flushed says only that something else came before.
    pub(crate) fn is_vague(number: u64) -> bool {
        number == 0 || number == Reason::of_status(Status::WR_FLUSH_ERR).0
    }

    /// As a person reads it, with the names of verbs.h; `None` for 0.
    pub(crate) fn text(number: u64, status_name: impl Fn(usize) -> String) -> Option<String> {
        match number {
            0 => None,
            1 => Some("receives could not be posted".to_owned()),
            2 => Some("its lcore's completion queue overran".to_owned()),
            3 => Some("its device is gone".to_owned()),
            4 => Some("its connection is lost".to_owned()),
            Reason::STATUSES..0x200 => Some(format!("IBV_WC_{}", status_name((number - Reason::STATUSES) as usize))),
            number => {
                let known = Reason::EVENTS.iter().find(|(_, known)| *known == number);
                Some(known.map_or_else(|| format!("reason {number}"), |(kind, _)| kind.to_string()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_to_an_lcore_is_told_from_what_is_counted() {
        use AsyncEventKind as Kind;
        assert_eq!(Meaning::of(Kind::QpAccessErr), Meaning::Failed);
        assert_eq!(Meaning::of(Kind::CqErr), Meaning::Overrun);
        assert_eq!(Meaning::of(Kind::PortErr), Meaning::Link { up: false });
        assert_eq!(Meaning::of(Kind::PortActive), Meaning::Link { up: true });
        assert_eq!(Meaning::of(Kind::DeviceFatal), Meaning::Gone);
        for kind in [Kind::CommEst, Kind::SqDrained, Kind::PathMig, Kind::QpLastWqeReached, Kind::GidChange] {
            assert_eq!(Meaning::of(kind), Meaning::Nothing);
        }
    }

    #[test]
    fn reasons_survive_being_numbers() {
        let text = |reason: Reason| Reason::text(reason.number(), |status| format!("#{status}")).unwrap();
        assert_eq!(text(Reason::of_event(AsyncEventKind::QpAccessErr)), "IBV_EVENT_QP_ACCESS_ERR");
        assert_eq!(text(Reason::of_event(AsyncEventKind::QpFatal)), "IBV_EVENT_QP_FATAL");
        assert_eq!(text(Reason::of_status(Status::RNR_RETRY_EXC_ERR)), "IBV_WC_#13");
        assert_eq!(text(Reason::GONE), "its device is gone");
        assert_eq!(Reason::text(0, |_| String::new()), None);
        assert!(Reason::is_vague(Reason::of_status(Status::WR_FLUSH_ERR).number()));
        assert!(!Reason::is_vague(Reason::GONE.number()));
    }
}
