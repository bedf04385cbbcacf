//! The ends of runs, and the invariants then.

use super::World;
use crate::connection::multi_port::cm_thread::CmThread;
use crate::control::run_control::Phase;
use crate::run::random_steps::{Step, Tally};
use crate::stats::report::Report;

impl World {
    /// All parties settle, and the peers leave; every message must have arrived. In a run that ends
    /// at once, messages under way may arrive or not, and are accounted for.
    pub(in super::super) fn end(mut self) -> Tally {
        if !self.is_abrupt {
            self.calm();
            self.step(Step::Restart);
            self.settle();
        }
        let report = self.report(false);
        self.stop.connecting.raise();
        self.stop.watching.raise();
        self.control.advance(Phase::Ending);
        let mut lcore = self.lcore.take().expect("until now");
        lcore.run().unwrap();
        lcore.tear_down(|stage, said| panic!("{stage}: {said}"));
        drop(self.cm_thread.take().map(CmThread::run));
        let mut tally = if self.is_abrupt { self.check_abrupt() } else { self.check(&report) };
        let ledger = self.ledger.look();
        tally.operated = ledger.operated;
        (tally.failed_operations, tally.declined) = (ledger.failed_operations, ledger.declined);
        tally
    }

    /// The invariants after any end of a run.
    fn check_always(&self, ended: &Report) {
        let (ledger, door) = (self.ledger.look(), ended.port("door").unwrap());
        let counts = door.connections.as_ref().unwrap();
        let (told, counted) = (ledger.closed + ledger.failed, counts.closed + counts.failed);
        // The stages may not hear of the last changes.
        assert!(ledger.opened <= counts.opened && told <= counted, "{counts:?}");
        assert!(counts.opened + counted <= ledger.opened + told + 2 * counts.max, "{counts:?}");
        assert_eq!(counts.opened, counts.closed + counts.failed + counts.open, "{counts:?}");
        assert_eq!(ended.packets.held, 0, "{:?}", ended.packets);
        assert!(ended.pools.iter().all(|pool| pool.free == pool.packets), "{:?}", ended.pools);
        let came: u64 = ledger.received.values().map(|came| u64::from(*came)).sum();
        let unheard = door.rx_packets.checked_sub(came).expect("no more than came");
        // Every packet sent, or that no stage heard of, is posted or dropped with a reason.
        // Operations under way at the end have packets of their own. A run that ends at once drops
        // posted packets as well, whose completions it has not seen.
        let gone: u64 =
            ["tx_full", "no_connection", "stopped", "port_down"].map(|reason| ended.dropped(reason)).iter().sum();
        let packets = (door.tx_packets + gone).checked_sub(ledger.sent + unheard);
        let unseen = if self.is_abrupt { door.tx_packets.min(ended.dropped("stopped")) } else { 0 };
        let most = ledger.under_way.len() as u64 + unseen;
        assert!(packets.is_some_and(|packets| packets <= most), "{packets:?} of {most}: {:?}", ended.drops);
        assert_eq!((ended.dropped("stage_full"), ended.lcores[0].strays), (0, 0), "{:?}", ended.drops);
        let Some(operations) = &door.operations else { return };
        let (told, failed) =
            operations.kinds.iter().fold((0, 0), |sum, kind| (sum.0 + kind.completed, sum.1 + kind.failed));
        let asked = ledger.operated + ledger.failed_operations + ledger.under_way.len() as u64;
        assert_eq!((operations.under_way, told + failed), (0, asked), "{operations:?}");
        assert!(told >= ledger.operated && failed >= ledger.failed_operations, "{operations:?}");
        assert_eq!(operations.declined, ledger.declined, "{operations:?}");
    }

    fn check_abrupt(&self) -> Tally {
        let ended = self.report(true);
        self.check_always(&ended);
        let counts = ended.port("door").unwrap().connections.clone().unwrap();
        let (opened, closed, failed) = (counts.opened, counts.closed, counts.failed);
        Tally { opened, closed, failed, abrupt: 1, ..Tally::default() }
    }

    fn check(&self, report: &Report) -> Tally {
        let (ledger, door) = (self.ledger.look(), report.port("door").unwrap());
        let counts = door.connections.as_ref().unwrap();
        assert_eq!((counts.open, ledger.open.len()), (0, 0), "everybody has left: {counts:?}");
        assert_eq!((counts.opened, counts.closed, counts.failed), (ledger.opened, ledger.closed, ledger.failed));
        assert_eq!(counts.opened, counts.closed + counts.failed, "{counts:?}");
        assert_eq!(counts.requests, counts.opened + counts.unanswered + counts.rejected_full, "{counts:?}");
        assert_eq!(counts.forced, 0, "{counts:?}");
        let (mut received, mut lost) = (0, 0);
        for (peer, done) in &self.gone {
            match ledger.received.get(peer) {
                Some(came) => {
                    assert_eq!(came, done, "of peer {peer}, which was told that {done} have arrived");
                    received += u64::from(*came);
                }
                None => lost += u64::from(*done),
            }
        }
        let dropped = |reason| report.dropped(reason);
        assert_eq!(door.rx_packets, received + lost, "{door:?}");
        let refused = dropped("no_connection").checked_sub(lost).expect("what no stage heard of is counted");
        assert_eq!(ledger.sent, door.tx_packets + dropped("tx_full") + refused, "{:?}", report.drops);
        assert_eq!(door.tx_packets, self.echoed + dropped("send_error"), "{:?}", report.drops);
        assert_eq!((dropped("stage_full"), dropped("recv_error"), door.stale), (0, 0, 0), "{:?}", report.drops);
        assert_eq!(report.lcores[0].strays, 0);
        assert_eq!(ledger.under_way.len(), 0, "operations have not come back");
        drop(ledger);
        self.check_always(&self.report(true));
        Tally {
            opened: counts.opened,
            closed: counts.closed,
            failed: counts.failed,
            unanswered: counts.unanswered,
            rejected: counts.rejected_full,
            received,
            lost,
            echoed: self.echoed,
            dropped: dropped("tx_full") + refused + dropped("send_error"),
            ..Tally::default()
        }
    }
}
