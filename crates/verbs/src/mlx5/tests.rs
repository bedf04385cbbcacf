//! The calls to a card and their order, and the bytes after the software RNIC has executed them.

use rdma_sys::ibv_wr_opcode;
use verbline_mem::{PageChoice, PeerRegion, Region, RegionSpec};
use verbline_softnic::qp_table::Transport;

use super::emulated::{self, Call, EVERYTHING, Has, calls};
use super::ffi::mlx5dv_sig_caps;
use crate::block_signature::{BlockSignature, BlockSize, Crc, CrcKind, Domain, Escape, Seed, T10Dif, T10Guard};
use crate::cq::CompletionQueue;
use crate::cq::completion::{Completions, Status};
use crate::device::capability::Capability;
use crate::device::context::Context;
use crate::device::event::AsyncEventKind;
use crate::memory::mr::Access;
use crate::memory::pd::ProtectionDomain;
use crate::memory::peer::PeerMr;
use crate::qp::attr::{InitSpec, RtrSpec, RtsSpec};
use crate::qp::{QpError, QpSpec, QueuePair};
use crate::signature::{KeyConfig, KeyLayout, KeySpec, Part, QpSignature, SignatureKey, Strip};
use crate::wr::connected::OnRc;
use crate::wr::kept::{KeepSpec, KeptKey, KeptRegion};
use crate::wr::local::{self, KeyPart, Local};
use crate::wr::operation::Operation;
use crate::wr::post::{PostStop, SendOptions};
use crate::wr::wr_queue::{Work, WorkList};
use crate::wr_id::WrKind;

const DIF: Domain = Domain::T10Dif(
    BlockSize::B512,
    T10Dif {
        guard: T10Guard::Crc,
        seed: Seed::Zeros,
        app_tag: 0xabcd,
        ref_tag: 7,
        ref_increments: true,
        escape: Escape::AppTag,
    },
);

/// A queue pair that talks to itself, on a card emulated by the software RNIC.
pub(super) struct Rig {
    pub(super) qp: QueuePair,
    cq: CompletionQueue,
    pub(super) pd: ProtectionDomain,
    context: Context,
    pub(super) mr: PeerMr,
}

impl Rig {
    pub(super) fn new(signature: QpSignature) -> Rig {
        Rig::with(signature, EVERYTHING)
    }

    fn with(signature: QpSignature, has: Has) -> Rig {
        let context = emulated::open(has);
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(256, None).unwrap());
        let mut qp = pd.create_qp(&QpSpec { signature, ..QpSpec::new(Transport::Rc, &cq) }).unwrap();
        qp.to_init(&InitSpec { access: Access::REMOTE_WRITE | Access::REMOTE_READ, ..InitSpec::default() }).unwrap();
        qp.to_rtr(&RtrSpec::connected(qp.endpoint())).unwrap();
        qp.to_rts(&RtsSpec::default()).unwrap();
        let spec = RegionSpec { name: "card".into(), len_bytes: 16384, pages: PageChoice::Auto, lock: false };
        let mr = pd.register_peer_region(PeerRegion::new(Region::map(&spec).unwrap()), all()).unwrap();
        Rig { qp, cq, pd, context, mr }
    }

    fn key(&self) -> SignatureKey {
        self.pd.create_signature_key(&KeySpec::default()).unwrap()
    }

    pub(super) fn list(&self, parts: &[(usize, u32)]) -> KeyLayout {
        KeyLayout::list(parts.iter().map(|&(at, len)| self.mr.slice(at, len).unwrap()))
    }

    fn configure(&mut self, key: &mut SignatureKey, config: KeyConfig) -> Result<(), PostStop> {
        let posted = self.qp.rc().unwrap().configure_key(key, config, SendOptions::default());
        posted.map_err(|refused| refused.reason)
    }

    /// The statuses of the outstanding work requests.
    fn ends(&mut self) -> Vec<Status> {
        let (mut completions, mut ends) = (Completions::with_capacity(8), Vec::new());
        while self.cq.poll(&mut completions) > 0 {
            for completion in &completions {
                drop(self.qp.op_done(completion, &mut verbline_mem::Batch::with_capacity(8)).unwrap());
                ends.push(completion.status());
            }
        }
        ends
    }

    fn read(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.mr.read_into(at, &mut bytes).unwrap();
        bytes
    }
}

fn all() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ
}

#[test]
fn a_queue_pair_is_made_with_room_for_configurations() {
    calls();
    let rig = Rig::new(QpSignature::Pipelined);
    // Three slots per work request and the usual spares; 8 entries, which take 128 bytes on the
    // software RNIC, and a signature in addition.
    let expected = Call::CreateQp {
        create_flags: 1 << 3 | 1 << 6,
        send_ops_flags: 1 << 2,
        max_send_wr: 3 * 128 + 32,
        max_inline_data: 8 * 16 + 64,
    };
    assert_eq!((calls(), rig.qp.max_inline_bytes()), (vec![expected], 128));
    // A queue pair that configures no keys is created and posted to like any other.
    let mut qp = rig.pd.create_qp(&QpSpec::new(Transport::Rc, &rig.cq)).unwrap();
    assert_eq!(calls(), []);
    qp.to_init(&InitSpec::default()).unwrap();
    qp.to_rtr(&RtrSpec::connected(qp.endpoint())).unwrap();
    qp.to_rts(&RtsSpec::default()).unwrap();
    let refused = qp.rc().unwrap().configure_key(&mut rig.key(), KeyConfig::new(), SendOptions::default());
    let says = "the QP was made without QpSpec::signature";
    assert_eq!((refused.unwrap_err().reason, calls()), (PostStop::NotKey(says), vec![]));
}

#[test]
fn what_moves_through_a_key_gets_and_loses_protection_information() {
    let mut rig = Rig::new(QpSignature::Keys);
    let mut key = rig.key();
    let config = KeyConfig::new().access(all()).layout(rig.list(&[(0, 512), (1024, 512)]));
    rig.configure(&mut key, config.signature(BlockSignature::on_the_wire(DIF))).unwrap();
    rig.mr.write_from(0, &[0x5a; 2048]).unwrap();
    let to = rig.mr.remote(8192);
    rig.qp.rc().unwrap().write(key.range(0, 1024), to, SendOptions::default()).unwrap();
    assert_eq!(rig.ends(), [Status::SUCCESS; 2]);
    assert_eq!(rig.read(8192 + 514, 6), [0xab, 0xcd, 0, 0, 0, 7]);
    assert_eq!(rig.read(8192 + 520 + 514, 6), [0xab, 0xcd, 0, 0, 0, 8]);
    rig.mr.write_from(8192 + 520 + 515, &[0xce]).unwrap();
    rig.qp.rc().unwrap().read(key.range(0, 1024), to, SendOptions::default()).unwrap();
    assert_eq!(rig.ends(), [Status::SUCCESS]);
    let fault = key.check().unwrap().expect("it is wrong");
    assert_eq!((fault.part, fault.expected, fault.actual, fault.offset), (Part::AppTag, 0xabce, 0xabcd, 520));
    assert_eq!(key.check().unwrap(), None);
}

#[test]
fn a_bad_block_stops_the_queue_and_its_response_is_cancelled() {
    let mut rig = Rig::new(QpSignature::Pipelined);
    let events = rig.context.async_events();
    let mut key = rig.key();
    rig.mr.write_from(0, &[1]).unwrap();
    let config = KeyConfig::new().layout(rig.list(&[(0, 520)])).signature(BlockSignature::in_memory(DIF));
    rig.configure(&mut key, config).unwrap();
    let mut rc = rig.qp.rc().unwrap();
    rc.write(key.range(0, 512), rig.mr.remote(4096), SendOptions::default()).unwrap();
    let fenced = SendOptions { fence: true, ..SendOptions::default() };
    rc.write(rig.mr.slice(0, 8).unwrap(), rig.mr.remote(8192), fenced).unwrap();
    let response = rig.qp.last_posted().unwrap();
    assert_eq!(events.try_next().unwrap().map(|event| event.kind), Some(AsyncEventKind::SqDrained));
    assert_eq!(rig.ends(), [Status::SUCCESS; 2]);
    assert!(key.check().unwrap().is_some_and(|fault| fault.part == Part::Guard));
    assert!(rig.qp.is_stopped().unwrap());
    calls();
    assert_eq!(rig.qp.cancel_posted_sends([response]).unwrap(), 1);
    assert_eq!(calls(), [Call::Cancel(response.wr_id(WrKind::Op))]);
    assert_eq!(rig.qp.cancel_posted_sends([response]).unwrap(), 0, "it does nothing already");
    rig.qp.resume().unwrap();
    assert_eq!((rig.ends(), rig.read(8192, 8)), (vec![Status::SUCCESS], vec![0; 8]));
    let error = rig.qp.cancel_posted_sends([response]).unwrap_err().to_string();
    assert!(error.contains("EINVAL") && error.contains("wait for the event SqDrained"), "{error}");
}

/// Two configurations with transfers around them, as one list.
fn list_of_works(rig: &mut Rig) -> WorkList {
    let regions = vec![Some(rig.mr.clone())];
    rig.qp.keep_memory(&KeepSpec { regions, windows: 0, keys: 2 }).unwrap();
    let part = |offset, len| local::Part { region: KeptRegion(0), span: (offset..offset + len).into() };
    let blocks = BlockSignature::in_memory(DIF);
    let mut works = WorkList::with_capacity(16);
    let mut push = |operation| assert!(works.push(Work::plain(operation)).is_ok());
    let there = rig.mr.remote(8192);
    push(Operation::write(Local::Part(part(0, 8)), there));
    push(Operation::read(Local::Part(part(16, 8)), there));
    for key in [0, 1].map(KeptKey) {
        push(Operation::Sign { key, blocks, part: part(4096, 520), on: OnRc });
        push(Operation::write(Local::Key(KeyPart { key, offset: 0, len: 512 }, OnRc), there));
    }
    works
}

#[test]
fn a_list_is_cut_where_a_configuration_stands_and_keeps_its_order() {
    let mut rig = Rig::new(QpSignature::Keys);
    let mut works = list_of_works(&mut rig);
    calls();
    let outcome = rig.qp.rc().unwrap().post_works(&mut works);
    assert_eq!((outcome.posted, outcome.stop), (6, None));
    let made: Vec<_> = calls().into_iter().filter(|call| !matches!(call, Call::SigBlock { .. })).collect();
    let (write, read) = (ibv_wr_opcode::IBV_WR_RDMA_WRITE, ibv_wr_opcode::IBV_WR_RDMA_READ);
    let shape: Vec<_> = made
        .iter()
        .map(|call| match call {
            Call::PostSend(opcodes) => format!("{opcodes:?}"),
            Call::Configure { setters: 2, conf_flags: 0, .. } => "configure".to_owned(),
            Call::List(parts) => format!("{} part", parts.len()),
            other => format!("{other:?}"),
        })
        .collect();
    let configured = ["Start", "configure", "1 part", "Complete"];
    let (first, then) = (format!("[{write}, {read}]"), format!("[{write}]"));
    let expected: Vec<&str> =
        [&[&*first][..], &configured, &[&*then], &configured, &[&*then]].into_iter().flatten().copied().collect();
    assert_eq!(shape, expected);
    let numbers: Vec<u64> = made
        .iter()
        .filter_map(|call| match call {
            Call::Configure { wr_id, .. } => Some(*wr_id),
            _ => None,
        })
        .collect();
    assert_eq!(numbers[1] - numbers[0], 2, "as many lie between them as in the list");
}

#[test]
fn a_configuration_that_is_refused_ends_its_list_there() {
    let mut rig = Rig::new(QpSignature::Keys);
    let mut works = list_of_works(&mut rig);
    emulated::refuse_next(libc::ENOMEM);
    let outcome = rig.qp.rc().unwrap().post_works(&mut works);
    assert_eq!((outcome.posted, outcome.stop, works.len()), (2, Some(PostStop::Full), 4));
    let outcome = rig.qp.rc().unwrap().post_works(&mut works);
    assert_eq!((outcome.posted, outcome.stop, works.len()), (4, None, 0));
}

#[test]
fn what_a_card_would_misunderstand_is_refused_before() {
    let caps = mlx5dv_sig_caps { block_size: 1, block_prot: 0b11, t10dif_bg: 1, crc_type: 0b10 };
    let mut rig = Rig::with(QpSignature::Keys, Has { caps, ..EVERYTHING });
    let mut key = rig.pd.create_signature_key(&KeySpec { max_entries: 64, ..KeySpec::default() }).unwrap();
    let slice = rig.mr.slice(0, 8).unwrap();
    calls();
    let mut refused = |config| match rig.configure(&mut key, config) {
        Err(PostStop::NotKey(says)) => says,
        other => panic!("{other:?}"),
    };
    let crc = |size, kind| BlockSignature::in_memory(Domain::Crc(size, Crc { kind, seed: Seed::Ones }));
    let config = |signature| KeyConfig::new().signature(signature);
    let no_size = "the device has no blocks of that size (mlx5dv_sig_caps.block_size)";
    let no_guard = "the device has no such guard (mlx5dv_sig_caps)";
    assert_eq!(refused(config(crc(BlockSize::B4096, CrcKind::Crc32c))), no_size);
    assert_eq!(refused(config(crc(BlockSize::B512, CrcKind::Crc64Xp10))), no_guard);
    let checksum = T10Dif { guard: T10Guard::IpChecksum, ..T10Dif::type_1(1, 2) };
    let checksum = Domain::T10Dif(BlockSize::B512, checksum);
    assert_eq!(refused(config(BlockSignature::on_both(DIF, checksum))), no_guard);
    assert_eq!(refused(KeyConfig::new().layout(KeyLayout::list([]))), "it would stand for no bytes");
    let strip = Strip { first: slice.clone(), skip_bytes: 0 };
    for (repeat, strips) in [(0, vec![strip]), (1, vec![])] {
        let layout = KeyLayout::interleaved(repeat, strips);
        assert_eq!(refused(KeyConfig::new().layout(layout)), "it would stand for no bytes");
    }
    let says = "on a card a strip and what is skipped behind it are 65,535 bytes at most";
    for skip_bytes in [65_528, u32::MAX] {
        let strips = [0, skip_bytes].map(|skip_bytes| Strip { first: slice.clone(), skip_bytes });
        assert_eq!(refused(KeyConfig::new().layout(KeyLayout::interleaved(1, strips))), says);
    }
    assert_eq!(calls(), []);
    rig.configure(&mut key, config(crc(BlockSize::B512, CrcKind::Crc32c))).unwrap();
    rig.configure(&mut key, config(BlockSignature::in_memory(DIF))).unwrap();
    let longest = Strip { first: rig.mr.slice(0, 8).unwrap(), skip_bytes: 65_527 };
    rig.configure(&mut key, KeyConfig::new().layout(KeyLayout::interleaved(1, [longest]))).unwrap();
}

#[test]
fn a_layout_has_as_many_entries_as_its_key_and_as_a_work_request() {
    let mut rig = Rig::new(QpSignature::Keys);
    let strips = |rig: &Rig, count: usize| {
        let strip = Strip { first: rig.mr.slice(0, 8).unwrap(), skip_bytes: 0 };
        KeyConfig::new().layout(KeyLayout::interleaved(1, vec![strip; count]))
    };
    let mut small = rig.pd.create_signature_key(&KeySpec { max_entries: 3, ..KeySpec::default() }).unwrap();
    let says = PostStop::NotKey("the layout has more entries than KeySpec::max_entries");
    for (config, fits) in [
        (KeyConfig::new().layout(rig.list(&[(0, 8); 3])), true),
        (KeyConfig::new().layout(rig.list(&[(0, 8); 4])), false),
        (strips(&rig, 2), true),
        (strips(&rig, 3), false),
    ] {
        let outcome = rig.configure(&mut small, config);
        assert_eq!(outcome, if fits { Ok(()) } else { Err(says) });
    }
    // Entries of a larger key, as many as a work request of this queue pair takes: for more, the
    // library would report a full queue.
    let mut key = rig.pd.create_signature_key(&KeySpec { max_entries: 64, ..KeySpec::default() }).unwrap();
    rig.configure(&mut key, KeyConfig::new().layout(rig.list(&[(0, 8); 8]))).unwrap();
    rig.configure(&mut key, strips(&rig, 7)).unwrap();
    calls();
    for config in [KeyConfig::new().layout(rig.list(&[(0, 8); 9])), strips(&rig, 8)] {
        let stop = rig.configure(&mut key, config).unwrap_err();
        assert!(matches!(stop, PostStop::Device(errno) if errno.raw() == libc::EINVAL), "{stop}");
    }
    assert_eq!((calls(), rig.ends().len()), (vec![], 4));
    emulated::destroyed();
    drop((key, small));
    assert_eq!(emulated::destroyed(), 2);
}

#[test]
fn a_card_without_room_for_three_slots_a_work_request_gives_what_it_has() {
    let asked = |has| {
        calls();
        let has = Has { max_send_wr: has, ..EVERYTHING };
        let context = emulated::open(has);
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(256, None).unwrap());
        let made = pd.create_qp(&QpSpec { signature: QpSignature::Keys, ..QpSpec::new(Transport::Rc, &cq) }).is_ok();
        let last = calls().into_iter().rev().find_map(|call| match call {
            Call::CreateQp { max_send_wr, .. } => Some(max_send_wr),
            _ => None,
        });
        (made, last)
    };
    assert_eq!(asked(3 * 128 + 31), (true, Some(3 * 128 + 1)));
    assert_eq!(asked(3 * 128), (true, Some(3 * 128)));
    assert_eq!(asked(3 * 128 - 1), (true, Some(128 + 1)));
    assert_eq!(asked(128), (false, Some(128 + 1)));
}

#[test]
fn a_card_gives_room_to_spare_before_inline_data() {
    let made = |slots: u32| {
        let has = Has { queue_bytes: slots * (8 * 16 + 64), ..EVERYTHING };
        Rig::with(QpSignature::Keys, has).qp.max_inline_bytes()
    };
    assert_eq!([3 * 128 + 32, 3 * 128 + 31, 3 * 128 + 1, 3 * 128].map(made), [128; 4]);
    assert!(made(3 * 128 - 1) < 128);
}

#[test]
fn what_a_card_keeps_of_a_signature_is_not_relied_on_after_it_was_refused() {
    let mut rig = Rig::new(QpSignature::Keys);
    let mut key = rig.key();
    let signed = KeyConfig::new().signature(BlockSignature::in_memory(DIF));
    rig.configure(&mut key, signed.clone()).unwrap();
    emulated::refuse_next(libc::ENOMEM);
    assert_eq!(rig.configure(&mut key, signed.clone()), Err(PostStop::Full));
    let kept = rig.configure(&mut key, KeyConfig::new().access(all()));
    assert!(matches!(kept, Err(PostStop::NotKey(says)) if says.starts_with("the device refused its last signature")));
    rig.configure(&mut key, signed).unwrap();
    rig.configure(&mut key, KeyConfig::new().access(all())).unwrap();
    // A refused configuration that does not touch the signature leaves it known.
    emulated::refuse_next(libc::ENOMEM);
    assert_eq!(rig.configure(&mut key, KeyConfig::new().access(all())), Err(PostStop::Full));
    rig.configure(&mut key, KeyConfig::new().access(all())).unwrap();
    emulated::refuse_next(libc::ENOMEM);
    assert_eq!(rig.configure(&mut key, KeyConfig::new().without_signature()), Err(PostStop::Full));
    assert!(rig.configure(&mut key, KeyConfig::new()).is_err());
    rig.configure(&mut key, KeyConfig::new().without_signature()).unwrap();
}

#[test]
fn what_is_lacking_is_named() {
    let is_none = |has| emulated::refused(has);
    assert_eq!(is_none(Has { is_mlx5: false, ..EVERYTHING }), "it is not an mlx5 device (mlx5dv_is_supported)");
    let says = "mlx5dv_query_device reports no block signatures of it (sig_caps.block_prot is 0)";
    assert_eq!(is_none(Has { caps: mlx5dv_sig_caps::default(), ..EVERYTHING }), says);
    assert_eq!(is_none(Has { is_known: false, ..EVERYTHING }), says);
    assert_eq!(
        is_none(Has { query: libc::EIO, ..EVERYTHING }),
        "mlx5dv_query_device answered EIO (Input/output error)"
    );
    let context = emulated::open(Has { pipelining: false, ..EVERYTHING });
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(64, None).unwrap());
    let spec = |signature| QpSpec { signature, ..QpSpec::new(Transport::Rc, &cq) };
    let error = pd.create_qp(&spec(QpSignature::Pipelined)).unwrap_err();
    let QpError::Lacking(lacking) = &error else { panic!("{error}") };
    assert_eq!(lacking.capability, Capability::SignaturePipelining);
    assert_eq!(
        error.to_string(),
        "soft0 has no QPs that stop behind a bad block (MLX5DV_QP_CREATE_SIG_PIPELINING): mlx5dv_create_qp with \
         MLX5DV_QP_CREATE_SIG_PIPELINING answered EOPNOTSUPP (Operation not supported); make the QP with \
         QpSignature::Keys, check the key when the transfer is done, and send the response then"
    );
    pd.create_qp(&spec(QpSignature::Keys)).unwrap();
}
