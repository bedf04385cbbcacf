//! Thread domains: QPs in one use registrations of their PD, and on devices without them QPs are
//! created without.

use crate::common::{Options, Side, connect, init_spec, provider};
use verbline_verbs::{InitSpec, Provider, QpSpec, Transport};

/// The side with its QP created again, in a thread domain if the device has them: the software RNIC
/// does, rdma_rxe does not.
fn in_a_domain(mut side: Side, options: &Options) -> Side {
    let spec = QpSpec { thread_domain: true, ..crate::common::spec(options, &side.cq, 7) };
    side.qp = side.pd.create_qp(&spec).unwrap();
    assert_eq!(side.qp.has_thread_domain(), provider() == Provider::Soft);
    assert_eq!(side.qp.pd().id(), side.pd.id());
    side.qp.to_init(&InitSpec { access: options.access, ..init_spec() }).unwrap();
    side
}

#[test]
fn queue_pairs_in_a_domain_use_the_pools_of_their_pd() {
    for transport in [Transport::Rc, Transport::Uc, Transport::Ud] {
        let options = Options::new(transport);
        let mut a = in_a_domain(Side::new("soft0", &options, 0xa), &options);
        let mut b = in_a_domain(Side::new("soft1", &options, 0xb), &options);
        connect(&mut a, &mut b, &options);
        assert_eq!(b.post_recvs(2), 2);
        // One inline, one from the pool registered on the PD.
        a.send(b"short");
        a.send(&[0x5a; 1000]);
        let lengths: Vec<usize> = b.receive(2).iter().map(|packet| packet.len()).collect();
        assert_eq!(lengths, [5, 1000]);
    }
}

#[test]
fn a_queue_pair_in_a_domain_moves_to_another_thread_and_goes_there() {
    let options = Options::new(Transport::Rc);
    let mut a = in_a_domain(Side::new("soft0", &options, 0xa), &options);
    let mut b = in_a_domain(Side::new("soft1", &options, 0xb), &options);
    connect(&mut a, &mut b, &options);
    assert_eq!(b.post_recvs(4), 4);
    let Side { qp, .. } = b;
    std::thread::spawn(move || drop(qp)).join().unwrap();
    drop(a);
}
