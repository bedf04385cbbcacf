//! Re-registration in place, and memory paged on demand.

use crate::common::{Options, PATIENCE, Side, hand_back, only_soft, pair, provider, region};
use verbline_mem::PeerRegion;
use verbline_verbs::{
    Access, MrError, Provider, SendOptions, Status, Transport, WrKind,
    attr::OnDemandOps,
    expert::MrOptions,
    rdma::{PeerMr, Remote},
};

const WRITABLE: Access = Access::LOCAL_WRITE;

fn open_to_peers() -> Access {
    WRITABLE | Access::REMOTE_WRITE
}

/// Writes to the peer, and polls both sides until that is done.
fn write(a: &mut Side, b: &mut Side, to: Remote, bytes: &[u8]) -> Status {
    let packet = a.packet(bytes);
    a.qp.rc().unwrap().write(packet, to, SendOptions::default()).unwrap();
    let deadline = std::time::Instant::now() + PATIENCE;
    let mut end = None;
    while end.is_none() {
        assert!(std::time::Instant::now() < deadline, "the write completes");
        b.poll(hand_back);
        a.poll(|qp, freed, completion| {
            if completion.kind() == WrKind::Op {
                end = Some(completion.status());
            }
            hand_back(qp, freed, completion);
        });
    }
    end.unwrap()
}

fn bytes(region: &PeerRegion, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.read_into(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn access_can_be_changed_in_place_while_nobody_shares_it() {
    only_soft!("rdma_rxe of Linux 6.1 has no ibv_rereg_mr");
    let (mut a, mut b) = pair(&Options::new(Transport::Rc));
    let mut mr = b.peer_region(4096, open_to_peers());
    let slice = mr.slice(0, 8).unwrap();
    assert!(matches!(mr.set_access(WRITABLE), Err(MrError::Shared { shared_by: 1 })));
    drop(slice);
    assert_eq!(write(&mut a, &mut b, mr.remote(0), b"allowed"), Status::SUCCESS);
    mr.set_access(WRITABLE | Access::REMOTE_READ).unwrap();
    assert!(!mr.access().contains(Access::REMOTE_WRITE));
    assert_eq!(write(&mut a, &mut b, mr.remote(0), b"no more"), Status::REM_ACCESS_ERR);
    assert!(matches!(mr.set_access(Access::REMOTE_WRITE), Err(MrError::NeedsLocalWrite { .. })));
}

#[test]
fn other_memory_takes_the_place_of_the_old_which_comes_back() {
    only_soft!("rdma_rxe of Linux 6.1 has no ibv_rereg_mr");
    let (mut a, mut b) = pair(&Options::new(Transport::Rc));
    let mut mr = b.peer_region(4096, open_to_peers());
    let stale = mr.remote(0);
    assert_eq!(write(&mut a, &mut b, stale, b"old"), Status::SUCCESS);
    let old = mr.replace_region(PeerRegion::new(region("new", 8192))).unwrap();
    assert_eq!((old.len_bytes(), mr.len_bytes()), (4096, 8192));
    assert_eq!(write(&mut a, &mut b, mr.remote(0), b"new"), Status::SUCCESS);
    assert_eq!((bytes(&old, 3), bytes(&mr, 3)), (b"old".to_vec(), b"new".to_vec()));
    // Nobody reaches the old memory by its old address.
    assert_eq!(write(&mut a, &mut b, stale, b"lost"), Status::REM_ACCESS_ERR);
    assert_eq!(bytes(&old, 3), b"old");
    assert!(mr.slice(8000, 192).is_some(), "all of the new memory is there");
}

#[test]
fn memory_that_is_refused_comes_back() {
    let (_, b) = pair(&Options::new(Transport::Rc));
    let mut mr = b.peer_region(4096, open_to_peers());
    let clone = mr.clone();
    let refused = mr.replace_region(PeerRegion::new(region("new", 8192))).unwrap_err();
    assert!(matches!(refused.error, MrError::Shared { shared_by: 1 }));
    assert_eq!((refused.region.unwrap().len_bytes(), clone.len_bytes()), (8192, 4096));
}

#[test]
fn a_registration_moves_to_another_pd_of_its_device() {
    only_soft!("rdma_rxe of Linux 6.1 has no ibv_rereg_mr");
    let (mut a, mut b) = pair(&Options::new(Transport::Rc));
    let mut mr = b.peer_region(4096, open_to_peers());
    let foreign = mr.set_pd(&a.pd).unwrap_err();
    assert_eq!(
        foreign.to_string(),
        "the PD belongs to soft0, the registration to soft1; a registration stays on its device"
    );
    let other = b.context.alloc_pd().unwrap();
    mr.set_pd(&other).unwrap();
    // Back again before anybody used it, and once more for good. The registration keeps its PD.
    mr.set_pd(&b.pd).unwrap();
    assert_eq!(write(&mut a, &mut b, mr.remote(0), b"here"), Status::SUCCESS);
    mr.set_pd(&other).unwrap();
    drop(other);
    assert_eq!(write(&mut a, &mut b, mr.remote(0), b"gone"), Status::REM_ACCESS_ERR);
    assert_eq!(bytes(&mr, 4), b"here");
}

/// The counterpart of the tests above.
#[test]
fn a_device_that_cannot_reregister_says_so_and_keeps_what_there_is() {
    if provider() == Provider::Soft {
        eprintln!("skipped: on the software RNIC: it can re-register");
        return;
    }
    let (mut a, mut b) = pair(&Options::new(Transport::Rc));
    let mut mr = b.peer_region(4096, open_to_peers());
    let other = b.context.alloc_pd().unwrap();
    let refused = mr.replace_region(PeerRegion::new(region("new", 8192))).unwrap_err();
    let said = [mr.set_access(WRITABLE).unwrap_err(), mr.set_pd(&other).unwrap_err(), refused.error];
    for error in said {
        let text = error.to_string();
        assert!(text.contains("EOPNOTSUPP") && text.contains("drop it and register again"), "{text}");
    }
    assert_eq!(refused.region.unwrap().len_bytes(), 8192);
    assert_eq!(write(&mut a, &mut b, mr.remote(0), b"still there"), Status::SUCCESS);
    assert_eq!(bytes(&mr, 11), b"still there");
}

#[test]
fn memory_is_paged_on_demand_where_the_device_offers_it() {
    let (mut a, mut b) = pair(&Options::new(Transport::Rc));
    let options = MrOptions { on_demand: true, ..MrOptions::default() };
    let memory = PeerRegion::new(region("on demand", 1 << 20));
    let registered = b.pd.register_peer_region_with(memory, open_to_peers(), options);
    let offered = b.context.query_device().unwrap().on_demand;
    if !offered.supported {
        // rdma_rxe of Linux 6.1.
        let text = registered.unwrap_err().to_string();
        assert!(text.contains("has no on-demand paging") && text.contains("MrOptions::on_demand"), "{text}");
        return;
    }
    assert!(offered.of(Transport::Rc).contains(OnDemandOps::WRITE));
    let mr: PeerMr = registered.unwrap();
    // Into a page that was never touched.
    assert_eq!(write(&mut a, &mut b, mr.remote(999_424), b"fresh page"), Status::SUCCESS);
    let mut found = [0; 10];
    mr.read_into(999_424, &mut found).unwrap();
    assert_eq!(&found, b"fresh page");
}

#[test]
fn a_pool_is_paged_on_demand() {
    let options = Options::new(Transport::Rc);
    let (mut a, mut b) = pair(&options);
    if !b.context.query_device().unwrap().on_demand.of(Transport::Rc).contains(OnDemandOps::RECV | OnDemandOps::SEND) {
        eprintln!("skipped: the device has no on-demand paging");
        return;
    }
    let pool = crate::common::pool("lazy", 4, 2048, 0);
    b.pd.register_pool_with(&pool, MrOptions { on_demand: true, relaxed_ordering: true }).unwrap();
    let mut batch = verbline_mem::Batch::with_capacity(1);
    pool.cache(0).get_bulk(&mut batch, 1);
    assert_eq!(b.qp.post_recv(&mut batch).posted, 1);
    let long = crate::common::message(7, 1500);
    a.send(&long);
    let came = b.receive(1);
    assert_eq!((came[0].data(), came[0].pool_name()), (&long[..], "lazy"));
}
