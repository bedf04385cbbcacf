//! The device does what its script says.

use verbline_mem::{Batch, Pool};
use verbline_softnic::qp_table::Transport;

use super::*;
use crate::cq::CompletionQueue;
use crate::cq::completion::Completions;
use crate::fake_device;
use crate::qp::attr::{InitSpec, RtrSpec, RtsSpec};
use crate::qp::{QpSpec, QueuePair};
use crate::wr::post::PostStop;

/// A QP of the device, a batch of `packets` packets to post, and their pool.
fn pair(packets: usize) -> (Script, CompletionQueue, QueuePair, Batch, Pool) {
    let (context, script) = Script::open().unwrap();
    let (cq, pd) = (context.create_cq(16, None).unwrap(), context.alloc_pd().unwrap());
    let mut qp = pd.create_qp(&QpSpec { signal_every_wr: 2, ..QpSpec::new(Transport::Rc, &cq) }).unwrap();
    qp.to_init(&InitSpec::default()).unwrap();
    qp.to_rtr(&RtrSpec::connected(qp.endpoint())).unwrap();
    qp.to_rts(&RtsSpec::default()).unwrap();
    let pool = fake_device::unregistered_pool(packets as u32);
    pd.register_pool(&pool).unwrap();
    let mut batch = Batch::with_capacity(packets);
    pool.cache(0).get_bulk(&mut batch, packets);
    (script, cq, qp, batch, pool)
}

#[test]
fn it_takes_so_many_and_completes_what_it_is_told_to() {
    let (script, mut cq, mut qp, mut batch, _pool) = pair(5);
    let mut completions = Completions::with_capacity(8);
    script.queues().take_only(3, libc::ENOMEM);
    let outcome = qp.post_recv(&mut batch);
    assert_eq!((outcome.posted, outcome.stop), (3, Some(PostStop::Full)));
    assert_eq!(cq.poll(&mut completions), 0, "nothing completes of itself");
    {
        let mut queues = script.queues();
        assert_eq!((queues.recvs(qp.qpn()).len(), queues.takes()), (3, 0));
        assert!(queues.receive(qp.qpn(), 100) && queues.fail_recv(qp.qpn(), Status::LOC_LEN_ERR));
        queues.take_all();
    }
    assert_eq!(cq.poll(&mut completions), 2);
    let [first, second] = completions.as_slice() else { panic!("{completions:?}") };
    assert_eq!(qp.recv_done(first).unwrap().len(), 100);
    assert_eq!((second.status(), qp.recv_done(second).unwrap().len()), (Status::LOC_LEN_ERR, 0));
    assert!(script.queues().repeat());
    assert_eq!(cq.poll(&mut completions), 1);
    assert!(qp.recv_done(&completions.as_slice()[0]).is_err(), "it was given before");

    assert_eq!(qp.post_send(&mut batch).posted, 2);
    let signaled: Vec<bool> = script.queues().sends(qp.qpn()).iter().map(|send| send.signaled).collect();
    assert_eq!(signaled, [false, true]);
    qp.to_err().unwrap();
    let in_error = script.queues().in_error();
    assert_eq!(in_error, [qp.qpn()]);
    assert_eq!(script.queues().flush(qp.qpn()).len(), 2);
    assert_eq!(cq.poll(&mut completions), 3, "two sends and the receive that was left");
    let posts = script.queues().posts();
    let taken: Vec<_> = posts.iter().map(|post| (post.taken.len(), post.refused)).collect();
    assert_eq!(taken, [(3, true), (2, false)]);
}

#[test]
fn what_was_of_a_pair_that_is_gone_is_gone_and_so_is_a_device_without_a_script() {
    let (script, mut cq, mut qp, mut batch, _pool) = pair(2);
    assert_eq!(qp.post_recv(&mut batch).posted, 2);
    let qpn = qp.qpn();
    let polls = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&polls);
    script.on_poll(move |queues| {
        queues.receive(qpn, 1);
        *lock(&counted) += 1;
    });
    let mut completions = Completions::with_capacity(1);
    assert_eq!(cq.poll(&mut completions), 1);
    assert!(script.queues().receive(qpn, 1));
    drop(qp);
    assert_eq!((cq.poll(&mut completions), script.queues().ready.len(), *lock(&polls)), (0, 0, 2));
    drop(script);
    assert_eq!((cq.poll(&mut completions), cq.poll_errors()), (0, 1));
}
