//! Admission of queues: wrong requests and Connects, and the answers to them.

use crate::common::{CONNECT, ENTRIES, Host, SUBSYSTEM, end, target};
use verbline::verbs::connection::ConnectionError;
use verbline_nvme::cm::{Reject, Request};
use verbline_nvme::connect::{CNTLID_ANY, Connect};
use verbline_nvme::{Response, Status};

#[test]
fn requests_that_are_wrong_are_rejected_with_their_reason() {
    let running = target(7801, "queues_max = 4\nentries_max = 64");
    let mut host = Host::new(7801);
    let good = Request { qid: 1, recv_depth: 16, send_depth_less_one: 15, cntlid: 0 };
    let format = [&[1, 0][..], &good.to_bytes()[2..]].concat();
    let with = |change: &dyn Fn(&mut Request)| {
        let mut request = good;
        change(&mut request);
        request.to_bytes().to_vec()
    };
    let cases = [
        (Vec::new(), Reject::Length),
        (good.to_bytes()[..31].to_vec(), Reject::Length),
        (format, Reject::Format),
        (with(&|request| request.qid = 5), Reject::QueueId),
        (with(&|request| request.send_depth_less_one = 0), Reject::SendDepth),
        (with(&|request| request.send_depth_less_one = 64), Reject::SendDepth),
        (with(&|request| request.send_depth_less_one = u16::MAX), Reject::SendDepth),
        (with(&|request| (request.qid, request.send_depth_less_one) = (0, 32)), Reject::SendDepth),
        (with(&|request| request.recv_depth = 14), Reject::RecvDepth),
    ];
    for (private_data, reject) in cases {
        match host.dial(private_data.clone()) {
            Err(ConnectionError::Rejected { private_data: said, .. }) => {
                assert_eq!(Reject::read(&said), Some(reject), "{private_data:?}");
            }
            other => panic!("{private_data:?} is not rejected: {other:?}"),
        }
    }
    end(running);
}

/// Regression: an I/O queue had up to 32 entries even where the plan, and the controller's
/// CAP.MQES, say fewer. Admin queues have 32 in any case.
#[test]
fn io_queues_have_no_more_entries_than_the_plan_says() {
    let running = target(7954, "entries_max = 16");
    let mut host = Host::new(7954);
    let request = |qid: u16, entries: u16| {
        let request = Request { qid, recv_depth: entries, send_depth_less_one: entries - 1, cntlid: 0 };
        request.to_bytes().to_vec()
    };
    for entries in [17, 32] {
        match host.dial(request(1, entries)) {
            Err(ConnectionError::Rejected { private_data, .. }) => {
                assert_eq!(Reject::read(&private_data), Some(Reject::SendDepth), "{entries}");
            }
            other => panic!("{entries} entries are not rejected: {other:?}"),
        }
    }
    assert!(host.dial(request(1, 16)).is_ok() && host.dial(request(0, 32)).is_ok());
    end(running);
}

/// The commands of a port are bounded: a queue that asks for more than the rest is rejected.
#[test]
fn queues_beyond_the_room_for_their_commands_are_rejected() {
    let running = target(7802, "commands_max = 40");
    let mut host = Host::new(7802);
    host.dial_queue(0);
    host.dial_queue(1);
    let third = Request { qid: 2, recv_depth: ENTRIES, send_depth_less_one: ENTRIES - 1, cntlid: 0 };
    match host.dial(third.to_bytes().to_vec()) {
        Err(ConnectionError::Rejected { private_data, .. }) => {
            assert_eq!(Reject::read(&private_data), Some(Reject::NoResources));
        }
        other => panic!("not rejected: {other:?}"),
    }
    end(running);
}

#[test]
fn connects_that_are_wrong_say_which_byte() {
    let running = target(7803, "hosts = [\"nqn.2026-01.org.example:host\"]");
    let mut host = Host::new(7803);
    let queue = host.dial_queue(0);
    let invalid =
        |at: u16, in_data: bool| (Status::CONNECT_INVALID_PARAMETERS, Response::invalid_parameter(at, in_data));
    let good = host.data(CNTLID_ANY, SUBSYSTEM);
    let other_name = host.data(CNTLID_ANY, "nqn.2026-01.org.example:none");
    let cases = [
        (Connect { qid: 1, ..CONNECT }, good, invalid(42, false)),
        (Connect { sqsize: 0, ..CONNECT }, good, invalid(44, false)),
        (Connect { sqsize: u16::MAX, ..CONNECT }, good, invalid(44, false)),
        (CONNECT, host.data(7, SUBSYSTEM), invalid(16, true)),
        (CONNECT, other_name, invalid(256, true)),
    ];
    for (asked, data, (status, result)) in cases {
        let answer = host.connect(queue, asked, &data);
        assert!(answer.status.is(status) && answer.status.is_final(), "{asked:?}: {answer:?}");
        assert_eq!(answer.result, result, "{asked:?}");
    }
    host.name = "nqn.2026-01.org.example:stranger";
    let stranger = host.data(CNTLID_ANY, SUBSYSTEM);
    assert!(host.connect(queue, CONNECT, &stranger).status.is(Status::CONNECT_INVALID_HOST));
    assert!(host.connect(queue, CONNECT, &good).status.is_success(), "the queue is as good as new");
    assert!(host.connect(queue, CONNECT, &good).status.is(Status::SEQUENCE_ERROR), "it is connected already");
    end(running);
}
