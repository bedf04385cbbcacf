//! What a supervisor tells, and what it hears.

use std::sync::Mutex;

use verbline_verbs::Transport;

use super::*;
use crate::control::event_fd::ConnectionStops;
use crate::control::run_control::{Control, LcoreInbox};
use crate::rig::log::at_each_log;
use crate::rig::{Depths, Rig};

/// Connects nobody.
struct Nobody;

impl ConnectionManager for Nobody {
    type Connection = Connection;

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wait<const N: usize>(&self, _: [BorrowedFd<'_>; N], _: Option<Instant>) -> [bool; N] {
        [false; N]
    }

    fn connect(&mut self, _: &SharedStatus, _: &StopFlag) -> Result<(Connection, QueuePair), Failure> {
        Err(Failure::Stopped)
    }
}

fn mailbox() -> Arc<CmMailbox> {
    let control = Arc::new(Control::new(vec![verbline_ring::doorbell().unwrap().0]));
    Arc::new(CmMailbox::new(LcoreInbox { control, lcore: 0 }, 0, 1).unwrap())
}

/// Regression: the log was called under the lock that a snapshot takes.
#[test]
fn a_log_may_look_at_a_connection_that_is_lost() {
    let status = SharedStatus::new(Mutex::new(Status::new()));
    let stops = ConnectionStops::new(Arc::new(StopFlag::new().unwrap()), 1).unwrap();
    let supervisor = Supervisor {
        port: "p".into(),
        address: "10.9.9.1:1".parse().unwrap(),
        manager: Nobody,
        reconnects: false,
        lcore: LcoreSide::new(mailbox(), 0),
        status: Arc::clone(&status),
        stop: stops.of_lcore(0),
        clock: Clock::new(),
    };
    let look = move |_| status.try_lock().map(|status| status.state).ok();
    let lost = || supervisor.lost("on purpose".into(), ConnectionState::Disconnected);
    assert_eq!(at_each_log(look, lost), [Some(ConnectionState::Disconnected)]);
}

#[test]
fn what_was_heard_of_a_connection_is_not_of_the_next_one() {
    let rig = Rig::new(1);
    let cq = rig.context.create_cq(4, None).unwrap();
    let depths = Depths { tx_wr: 1, rx_wr: 1, signal_every_wr: 1 };
    let qp = rig.pd.create_qp(&Rig::spec(&cq, Transport::Rc, depths, 0)).unwrap();
    let mailbox = mailbox();
    let (mut side, connection) = (LcoreSide::new(Arc::clone(&mailbox), 0), first_connection(0));
    let mut hear = || {
        mailbox.tell_cm(ToCm::Over { connection, down_reason: 7 });
        mailbox.tell_cm(ToCm::Drained { connection });
        let LcoreSide { over, is_drained, .. } = side.hear();
        (*over, *is_drained)
    };
    assert_eq!(hear(), (Some(7), true));
    side.give(qp);
    assert_eq!((side.over, side.is_drained), (None, false));
}
