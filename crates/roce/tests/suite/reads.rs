//! The answers of READs, at the requester.

use verbline_roce::transport::{Retries, ack_timeout_ns};
use verbline_roce::{Operation, Status};

use crate::pair::{Pair, RIGHTS, remote, statuses};
use crate::reliable::MTU;

/// Each packet of an answer is progress: the next one has the whole time-out, and all retries.
#[test]
fn each_packet_of_an_answer_restores_the_time_out_and_the_retries() {
    let retries = Retries { retry_count: 1, ..Retries::default() };
    let timeout_ns = ack_timeout_ns(retries.timeout).expect("a time-out");
    let mut pair = Pair::rc(retries, RIGHTS);
    pair.a.send(1, Operation::Read(remote(&pair.b)), 4 * MTU);
    pair.a.all(0);
    let mut now_ns = 0;
    for at in 0..4 {
        // The answer is lost; the one to the only retry is late, and all behind its first packet is
        // lost.
        if at > 0 {
            // So is the probe, before whose time nothing else is due.
            let probe_ns = pair.a.qp.deadline_ns().expect("a probe");
            pair.a.qp.advance(probe_ns);
            assert_eq!((pair.a.all(probe_ns).len(), probe_ns), (1, now_ns + 1_000_000), "{at}");
        }
        assert_eq!(pair.a.qp.deadline_ns(), Some(now_ns + timeout_ns), "{at}");
        now_ns += timeout_ns;
        pair.a.qp.advance(now_ns);
        pair.a.all(now_ns).iter().for_each(|datagram| _ = pair.b.take(now_ns, datagram));
        let answer = pair.b.all(now_ns).swap_remove(0);
        now_ns += timeout_ns - 1;
        pair.a.take(now_ns, &answer).expect("taken");
    }
    assert_eq!((statuses(&mut pair.a), pair.a.qp.deadline_ns()), (vec![(1, Status::Success)], None));
}
