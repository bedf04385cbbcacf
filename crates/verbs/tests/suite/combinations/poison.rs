//! Earlier posts of the thread, to another queue pair: work requests with a value in every field
//! that must not be used again.

use verbline_verbs::rdma::{
    Atomic, KeepSpec, KeptRegion, KeptWindow, Local, OnRc, Operation, Part, PeerMr, Remote, Span, Transfer, Word, Work,
    WorkList,
};
use verbline_verbs::scripted_device::Script;
use verbline_verbs::{Access, CompletionQueue, Completions, Status, Transport};

use crate::common::region;

/// An address without memory.
const NOWHERE: Remote = Remote { addr: 0x6161_6161_0000, rkey: 0x6161_6161 };

/// A queue pair of a device that carries out nothing.
pub struct Poison {
    script: Script,
    cq: CompletionQueue,
    qp: verbline_verbs::QueuePair,
    completions: Completions,
    mr: PeerMr,
}

impl Poison {
    pub fn new() -> Poison {
        let (context, script) = Script::open().unwrap();
        let (cq, pd) = (context.create_cq(64, None).unwrap(), context.alloc_pd().unwrap());
        let mut qp = pd.create_qp(&verbline_verbs::QpSpec::new(Transport::Rc, &cq)).unwrap();
        qp.to_init(&verbline_verbs::InitSpec::default()).unwrap();
        qp.to_rtr(&verbline_verbs::RtrSpec::connected(qp.endpoint())).unwrap();
        qp.to_rts(&verbline_verbs::RtsSpec::default()).unwrap();
        let mr = verbline_mem::PeerRegion::new(region("poison", 4096));
        let mr = pd.register_peer_region(mr, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
        qp.keep_memory(&KeepSpec { regions: vec![Some(mr.clone())], windows: 1, keys: 0 }).unwrap();
        Poison { script, cq, qp, completions: Completions::with_capacity(64), mr }
    }

    /// Posts from the same entries that this thread uses for all its posts.
    pub fn spread(&mut self) {
        let part = Part { region: KeptRegion(0), span: Span::from(0..64) };
        let word = || Word::Part(Part { span: Span::from(0..8), ..part });
        let write = |imm| Operation::Transfer { transfer: Transfer::write(NOWHERE, imm), local: Local::Part(part) };
        let swap = Atomic::CompareSwap { at: NOWHERE, compare: u64::MAX, swap: u64::MAX };
        let bind = Operation::Bind { window: KeptWindow(0), part, access: Access::REMOTE_WRITE };
        let mut works = WorkList::with_capacity(8);
        for operation in [
            bind,
            Operation::Atomic { atomic: swap, into: word(), on: OnRc },
            write(Some(u32::MAX)),
            Operation::Transfer { transfer: Transfer::SendWithInvalidate { rkey: u32::MAX }, local: Local::Part(part) },
            write(None),
        ] {
            works.push(Work::plain(operation)).unwrap();
        }
        let outcome = self.qp.rc().unwrap().post_works(&mut works);
        assert_eq!((outcome.posted, outcome.stop), (5, None));
        let options = verbline_verbs::SendOptions { imm: Some(u32::MAX), ..Default::default() };
        let slice = self.mr.slice(0, 64).unwrap();
        self.qp.rc().unwrap().write(slice, NOWHERE, options).unwrap();
        while self.script.queues().end_send(self.qp.qpn(), Status::SUCCESS).is_some() {}
        let mut freed = verbline_mem::Batch::with_capacity(8);
        while self.cq.poll(&mut self.completions) > 0 {
            for completion in &self.completions {
                if self.qp.sends_outstanding() > 1 {
                    _ = self.qp.works_done(completion, &mut freed, |_, _, _| ()).unwrap();
                } else {
                    drop(self.qp.op_done(completion, &mut freed).unwrap());
                }
            }
            self.completions.clear();
        }
        assert_eq!(self.qp.sends_outstanding(), 0);
    }
}
