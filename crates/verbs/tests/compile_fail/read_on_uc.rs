//! UC carries no READ, no atomic, nothing through a signature key and no fence, by itself or in a
//! list; UD no WRITE and no fence. A batch that goes over any transport has no fence either.

use verbline_mem::Batch;
use verbline_verbs::rdma::{
    Addressed, Atomic, Buffer, KeptKey, KeyPart, Local, OnRc, OnUc, Operation, Part, Remote, Transfer, Word, WorkList,
    WorkOptions,
};
use verbline_verbs::signature::BlockSignature;
use verbline_verbs::{QueuePair, SendOptions};

fn read(qp: &mut QueuePair, at: Remote) {
    let _ = qp.uc().unwrap().read(Buffer::Empty, at, SendOptions::default());
    let _ = qp.ud().unwrap().write(Buffer::Empty, at, SendOptions::default());
}

fn fence(qp: &mut QueuePair, batch: &mut Batch, at: Remote) {
    let _ = qp.uc().unwrap().write(Buffer::Empty, at, SendOptions { fence: true, ..SendOptions::default() });
    let _ = qp.ud().unwrap().send(Addressed::Empty, SendOptions { fence: true, ..SendOptions::default() });
    let _ = qp.post_send_with(batch, |_, _| SendOptions { fence: true, ..SendOptions::default() });
}

fn list_of_rc(qp: &mut QueuePair, works: &mut WorkList<OnRc>) {
    let _ = qp.uc().unwrap().post_works(works);
}

fn listed_read(local: Local<OnUc>, from: Remote) -> [Operation<OnUc>; 2] {
    [Operation::read(local, from), Operation::Transfer { transfer: Transfer::Read { from, on: OnRc }, local }]
}

fn listed_atomic(into: Word, at: Remote) -> Operation<OnUc> {
    Operation::Atomic { atomic: Atomic::FetchAdd { at, add: 1 }, into, on: OnRc }
}

fn listed_response(key: KeptKey) -> Operation<OnUc> {
    Operation::Respond { key, invalidate: None, local: Local::Empty, on: OnRc }
}

fn listed_signature(key: KeptKey, part: Part, blocks: BlockSignature) -> Operation<OnUc> {
    Operation::Sign { key, part, blocks, on: OnRc }
}

fn listed_key(key: KeyPart) -> Local<OnUc> {
    Local::Key(key, OnRc)
}

fn listed_fence() -> WorkOptions<OnUc> {
    WorkOptions { fence: true, ..WorkOptions::default() }
}

fn main() {}
