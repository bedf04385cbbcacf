//! `send_flags` is the bitwise OR of flags: each has its own effect, whatever the others.

use super::common::*;
use super::flags::unregistered;
use crate::check::{During, Outcome, same, same_bytes};
use crate::rig::{Channel, Link, Mem, Notify, Op, Pair, Rig, SideSpec, Transport, Wr};
use crate::suite::Row;

const TEXT: &[u8] = b"combined";
/// The offset in `b`'s memory of the data for a READ in front of a fenced request.
const FAR: usize = 8192;

pub(super) fn rows() -> Vec<Row> {
    [RC, UC, UD].map(row).into()
}

fn row(transport: Transport) -> Row {
    let rule = format!("flags/{}-every-or", name(transport));
    let says = format!("{transport}: send_flags is 0 or the OR of flags, each of which does what it does alone");
    Row::new(rule, page::POST_SEND, says, move |rig: &Rig| every_or(rig, transport))
}

#[derive(Clone, Copy, Debug)]
struct Flags {
    signaled: bool,
    solicited: bool,
    inline: bool,
    fence: bool,
}

impl Flags {
    /// All sets of flags; FENCE is valid for RC only.
    fn all(transport: Transport) -> impl Iterator<Item = Flags> {
        let sets: u32 = if transport == RC { 16 } else { 8 };
        (0..sets).map(|set| {
            let [signaled, solicited, inline, fence] = [1, 2, 4, 8].map(|bit| set & bit != 0);
            Flags { signaled, solicited, inline, fence }
        })
    }

    fn set(self, wr: Wr) -> Wr {
        let wr = if self.signaled { wr } else { wr.unsignaled() };
        let wr = if self.solicited { wr.solicited() } else { wr };
        let wr = if self.inline { wr.inline() } else { wr };
        if self.fence { wr.fenced() } else { wr }
    }
}

fn every_or(rig: &Rig, transport: Transport) -> Outcome {
    let (channel, memory) = (rig.far().channel()?, rig.memory(64));
    memory.put(0, TEXT);
    let spec = SideSpec { channel: Some(&channel), ..SideSpec::default() };
    let pair = rig.pair_with(transport, spec, Link::default())?;
    let ops: &[Op] = if transport == UD { &[Op::Send, Op::SendImm] } else { &[Op::Send, Op::SendImm, Op::WriteImm] };
    for &op in ops {
        for flags in Flags::all(transport) {
            one(&pair, &channel, &memory, op, flags).during(format_args!("{op:?}, {flags:?}"))?;
        }
    }
    Ok(())
}

fn one(pair: &Pair, channel: &Channel, memory: &Mem, op: Op, flags: Flags) -> Outcome {
    let (here, there) = (pair.a.mr.sge(0..TEXT.len()), if op == Op::WriteImm { 0 } else { pair.header() });
    pair.b.mr.fill(0);
    // Not registered, with a key of no region: only INLINE accepts that.
    let from = if flags.inline { unregistered(memory, 0, TEXT.len() as u32) } else { here };
    let wr = match op {
        Op::Send => pair.send(2),
        Op::SendImm => pair.send(2).imm(7),
        _ => Wr::write(2, pair.remote(0)).imm(7),
    };
    let mut list = vec![flags.set(wr.sge(from))];
    if flags.fence {
        // The data to send is there once the READ is complete.
        pair.a.mr.fill(0);
        pair.b.mr.put(FAR, TEXT);
        list.insert(0, Wr::read(1, pair.remote(FAR)).sge(here).unsignaled());
    } else {
        pair.a.mr.put(0, TEXT);
    }
    pair.b.recv(3)?;
    pair.b.rcq.arm(Notify::Solicited)?;
    pair.a.qp.post_send(&list)?;
    let received = pair.b.rcq.wait_ok()?;
    same("immediate data", received.imm, (op != Op::Send).then_some(7))?;
    same_bytes("what was sent", &pair.b.mr.take(there, TEXT.len()), TEXT)?;
    if flags.signaled {
        same("SIGNALED: the send", pair.a.scq.wait_ok()?.id, 2)?;
    }
    pair.a.scq.quiet()?;
    if flags.solicited {
        channel.wait_ack(&pair.b.rcq).during("SOLICITED")?;
    }
    channel.quiet()
}
