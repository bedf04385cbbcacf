//! How a port goes down: once, and its device's packets come back.

use verbline_mem::Batch;
use verbline_verbs::Transport;
use verbline_verbs::event::AsyncEventKind;

use super::*;
use crate::ports::rx_half::Receiving;
use crate::ports::sink::Link;
use crate::rig::log::errors_of;
use crate::rig::{Depths, Rig, port};
use crate::stats::counter::shared;
use crate::stats::counters::LcoreStats;

fn up(rig: &Rig, transport: Transport) -> Port {
    let cq = rig.context.create_cq(16, None).unwrap();
    let depths = Depths { tx_wr: 4, rx_wr: 4, signal_every_wr: 1 };
    let mut qp = rig.pd.create_qp(&Rig::spec(&cq, transport, depths, 0)).unwrap();
    rig.bring_up(&mut qp);
    let mut batch = Batch::with_capacity(1);
    assert_eq!(rig.pool.cache(0).get_bulk_of_len(&mut batch, 1, 8), 1);
    assert_eq!(qp.post_send(&mut batch).posted, 1);
    port(0, qp, None, None, None)
}

#[test]
fn an_event_takes_a_port_down_once_and_has_its_device_flush_what_it_has() {
    for before in [Health::Up, Health::SendsDown] {
        let rig = Rig::new(4);
        let mut port = up(&rig, Transport::Uc);
        port.health = before;
        assert!(rig.script.queues().in_error().is_empty());
        let said = errors_of(|| (0..3).for_each(|_| port.failed_by(AsyncEventKind::QpFatal)));
        assert_eq!((said, port.health, port.stats.down.value()), (1, Health::Down, 1));
        assert_eq!(rig.script.queues().in_error(), [port.qp.qpn()]);
    }
}

#[test]
fn a_port_says_once_that_it_is_down_and_counts_each_status() {
    let rig = Rig::new(4);
    let mut port = up(&rig, Transport::Rc);
    let statuses = [Status::RETRY_EXC_ERR, Status::WR_FLUSH_ERR, Status::WR_FLUSH_ERR];
    let said = errors_of(|| statuses.into_iter().for_each(|status| port.failed_with(status, Health::Down)));
    assert_eq!((said, port.health), (1, Health::Down));
    let counted = |status: Status| port.stats.statuses[status.raw() as usize].value();
    assert_eq!((counted(Status::RETRY_EXC_ERR), counted(Status::WR_FLUSH_ERR)), (1, 2));
}

/// Regression: the time to look into its empty pool again stayed, passed, and its lcore slept no
/// more.
#[test]
fn a_port_that_is_down_wants_no_turn_for_its_receives() {
    for left in [Health::SendsDown, Health::Down] {
        let rig = Rig::new(4);
        let mut port = up(&rig, Transport::Uc);
        let receiving = port.receiving.insert(Receiving::new(0, Link::Drop, 4, 4, false));
        assert_eq!(receiving.retry_ns, None);
        // One packet is sent: the pool has three.
        assert!(port.refill(&rig.pool.cache(0), &shared::<LcoreStats>(), 0));
        assert!(port.retry_ns().is_some(), "it is starved");
        port.go_down(left, DownReason::LOST);
        assert_eq!(port.retry_ns().is_some(), left == Health::SendsDown);
    }
}
