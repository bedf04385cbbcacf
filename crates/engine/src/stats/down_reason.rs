//! Why a port went down, kept as a number so that it can be a counter.

use verbline_verbs::{Status, event::AsyncEventKind};

/// Why a port went down, as the number that its counters keep; 0: no reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DownReason(u64);

impl DownReason {
    /// Receives could not be posted.
    pub(crate) const REFUSED: DownReason = DownReason(1);
    /// The lcore's completion queue overran.
    pub(crate) const OVERRUN: DownReason = DownReason(2);
    /// The device is gone.
    pub(crate) const GONE: DownReason = DownReason(3);
    /// The connection manager reports the end of the connection.
    pub(crate) const LOST: DownReason = DownReason(4);
    const STATUSES: u64 = 0x100;
    const EVENTS: [(AsyncEventKind, u64); 3] =
        [(AsyncEventKind::QpFatal, 0x200), (AsyncEventKind::QpReqErr, 0x201), (AsyncEventKind::QpAccessErr, 0x202)];

    pub(crate) fn of_status(status: Status) -> DownReason {
        DownReason(DownReason::STATUSES + u64::from(status.raw().min(0xff)))
    }

    pub(crate) fn of_event(kind: AsyncEventKind) -> DownReason {
        let known = DownReason::EVENTS.iter().find(|(known, _)| *known == kind);
        DownReason(known.map_or(DownReason::EVENTS[0].1, |(_, number)| *number))
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// Whether a later reason says more: a flushed work request only shows that something else came
    /// before.
    pub(crate) fn is_vague(number: u64) -> bool {
        number == 0 || number == DownReason::of_status(Status::WR_FLUSH_ERR).0
    }

    /// Returns the reason in words, with the names of verbs.h; `None` for 0.
    pub(crate) fn text(number: u64) -> Option<String> {
        match number {
            0 => None,
            1 => Some("receives could not be posted".to_owned()),
            2 => Some("its lcore's completion queue overran".to_owned()),
            3 => Some("its device is gone".to_owned()),
            4 => Some("its connection is lost".to_owned()),
            DownReason::STATUSES..0x200 => {
                Some(format!("IBV_WC_{}", Status::from_raw((number - DownReason::STATUSES) as u32).name()))
            }
            number => {
                let known = DownReason::EVENTS.iter().find(|(_, known)| *known == number);
                Some(known.map_or_else(|| format!("reason {number}"), |(kind, _)| kind.to_string()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_survive_being_numbers() {
        let text = |reason: DownReason| DownReason::text(reason.number()).unwrap();
        assert_eq!(text(DownReason::of_event(AsyncEventKind::QpAccessErr)), "IBV_EVENT_QP_ACCESS_ERR");
        assert_eq!(text(DownReason::of_event(AsyncEventKind::QpFatal)), "IBV_EVENT_QP_FATAL");
        assert_eq!(text(DownReason::of_status(Status::RNR_RETRY_EXC_ERR)), "IBV_WC_RNR_RETRY_EXC_ERR");
        assert_eq!(text(DownReason::GONE), "its device is gone");
        assert_eq!(DownReason::text(0), None);
        assert!(DownReason::is_vague(DownReason::of_status(Status::WR_FLUSH_ERR).number()));
        assert!(!DownReason::is_vague(DownReason::GONE.number()));
    }
}
