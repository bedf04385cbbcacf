//! Posts one combination, with its function and memory.

use verbline_mem::{Batch, Packet};
use verbline_verbs::datagram::DestinationId;
use verbline_verbs::expert::{SgEntry, SgList};
use verbline_verbs::rdma::{
    Addressed, Atomic, Buffer, Carrier, Connected, KeepSpec, KeptKey, KeptRegion, KeptWindow, KeyPart, Local, NoFence,
    OnRc, OnUc, Operation, Part, Refused, Remote, Span, Transfer, Word, Work, WorkList, WorkOptions,
};
use verbline_verbs::signature::{BlockSignature, BlockSize, Crc, CrcKind, Domain, KeyConfig, KeyLayout, Seed};
use verbline_verbs::{Access, SendOptions, Transport};

use super::cell::{Cell, Flags, Memory, Route, State, What};
use super::rig::{AT, BLOCK_BYTES, HERE, IMM, LONG_BYTES, Rig, THERE, word};
use crate::common::Side;

/// The objects that listed operations name: the first of each kind that the queue pair keeps.
const REGION: KeptRegion = KeptRegion(0);
const WINDOW: KeptWindow = KeptWindow(0);
const KEY: KeptKey = KeptKey(0);

impl Rig {
    /// Posts the combination. Returns whether the device took it; if not, everything came back.
    pub fn posted(&mut self, cell: &Cell) -> bool {
        match cell.route {
            Route::Alone | Route::Inline => self.post_alone(cell),
            Route::Listed => self.post_listed(cell),
            Route::Batch => {
                let mut batch = Batch::with_capacity(1);
                batch.push(self.packet(cell.memory)).unwrap();
                let outcome = match self.a.qp.rc() {
                    Ok(mut rc) => rc.post_send_with(&mut batch, |_, _| send_options(cell.flags, cell.flags.fence)),
                    Err(_) => self.a.qp.post_send_with(&mut batch, |_, _| send_options(cell.flags, NoFence)),
                };
                assert_eq!(outcome.posted + batch.len(), 1);
                outcome.posted == 1
            }
        }
    }

    fn packet(&self, memory: Memory) -> Packet {
        let len = match memory {
            Memory::Nothing => 0,
            Memory::LongPacket => LONG_BYTES,
            _ => 8,
        };
        self.a.packet(&vec![HERE; len])
    }

    fn list(&self) -> SgList {
        [4, 4].map(|len| SgEntry::Packet(self.a.packet(&vec![HERE; len]))).into_iter().collect()
    }

    fn buffer(&self, memory: Memory) -> Buffer {
        match memory {
            Memory::Nothing => Buffer::Empty,
            Memory::Packet | Memory::LongPacket => self.packet(memory).into(),
            Memory::Part => self.near.slice(AT, 8).unwrap().into(),
            Memory::List => self.list().into(),
            Memory::Key => self.key.range(0, 8).into(),
        }
    }

    fn addressed(&self, memory: Memory) -> Addressed {
        match memory {
            Memory::Nothing | Memory::Key => Addressed::Empty,
            Memory::Packet | Memory::LongPacket => self.packet(memory).into(),
            Memory::Part => self.near.slice(AT, 8).unwrap().into(),
            Memory::List => self.list().into(),
        }
    }

    fn post_alone(&mut self, cell: &Cell) -> bool {
        let to = self.far.remote(AT as u64);
        let inline = cell.route == Route::Inline;
        let (buffer, addressed) = (self.buffer(cell.memory), self.addressed(cell.memory));
        let (invalid, theirs) = (self.rkey(0), self.rkey(1));
        let part = self.near.slice(AT, 8).unwrap();
        let config = KeyConfig::new()
            .access(Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE)
            .layout(KeyLayout::list([part.clone()]));
        let Rig { a: Side { qp, .. }, windows: [window, _], fresh_key, .. } = self;
        macro_rules! common {
            ($qp:expr, $fence:expr) => {{
                let (mut qp, options) = ($qp, send_options(cell.flags, $fence));
                match cell.what {
                    What::Send if inline => qp.send_inline(addressed, options),
                    What::Send => qp.send(buffer, options),
                    What::Write if inline => qp.write_inline(addressed, to, options),
                    What::Write => qp.write(buffer, to, options),
                    What::SendWithInvalidate => qp.send_with_invalidate(buffer, theirs, options),
                    What::LocalInvalidate => qp.local_invalidate(invalid, options),
                    What::Bind => qp.bind_window(window, part, Access::REMOTE_WRITE, options),
                    _ => unreachable!("not written"),
                }
            }};
        }
        let (options, of_ud) = (send_options(cell.flags, cell.flags.fence), send_options(cell.flags, NoFence));
        let posted: Result<(), Refused> = match (cell.transport, cell.what) {
            (Transport::Ud, What::Send) if inline => qp.ud().unwrap().send_inline(addressed, of_ud),
            (Transport::Ud, _) => qp.ud().unwrap().send(addressed, of_ud),
            (Transport::Uc, _) => common!(qp.uc().unwrap(), NoFence),
            (_, What::Read) => qp.rc().unwrap().read(buffer, to, options),
            (_, What::CompareSwap) => qp.rc().unwrap().compare_swap(addressed, to, word(THERE), 7, options),
            (_, What::FetchAdd) => qp.rc().unwrap().fetch_add(addressed, to, 7, options),
            (_, What::Sign) => return qp.rc().unwrap().configure_key(fresh_key, config, options).is_ok(),
            (..) => common!(qp.rc().unwrap(), cell.flags.fence),
        };
        posted.is_ok()
    }

    fn post_listed(&mut self, cell: &Cell) -> bool {
        let regions = vec![Some(self.near.clone())];
        self.a.qp.keep_memory(&KeepSpec { regions, windows: 1, keys: 1 }).unwrap();
        if cell.transport == Transport::Uc {
            let mut works = self.list_of::<OnUc>(cell, None, NoFence);
            let outcome = self.a.qp.uc().unwrap().post_works(&mut works);
            return outcome.posted == 1;
        }
        let mut works = self.list_of(cell, Some(OnRc), cell.flags.fence);
        let count = works.len();
        let outcome = self.a.qp.rc().unwrap().post_works(&mut works);
        assert_eq!(outcome.posted + works.len(), count);
        if outcome.posted > 0 && !works.is_empty() {
            // Only the configuration was posted.
            while self.a.qp.sends_outstanding() > 0 {
                self.a.poll(|qp, freed, completion| _ = qp.works_done(completion, freed, |_, _, _| ()));
            }
        }
        works.is_empty()
    }

    /// The work request, behind the configuration of its key. `on` is the value that operations of
    /// RC alone hold.
    fn list_of<T: Connected>(&self, cell: &Cell, on: Option<T::Reliable>, fence: T::Fence) -> WorkList<T> {
        let Flags { solicited, signaled, .. } = cell.flags;
        let options = WorkOptions { solicited, fence, signaled };
        let mut works = WorkList::with_capacity(2);
        if let (Memory::Key, Some(on)) = (cell.memory, on) {
            let part = Part { region: REGION, span: Span::from(1024..1024 + BLOCK_BYTES) };
            let blocks = BlockSignature::on_the_wire(domain());
            works.push(Work::plain(Operation::Sign { key: KEY, part, blocks, on })).unwrap();
        }
        let operation = self.operation(cell, on).expect("it can be written");
        works.push(Work::Operation { operation, options }).unwrap();
        works
    }

    /// The operation; `None` if no value expresses it.
    fn operation<T: Connected>(&self, cell: &Cell, on: Option<T::Reliable>) -> Option<Operation<T>> {
        let part = Part { region: REGION, span: Span::from(AT as u32..AT as u32 + 8) };
        let local = match cell.memory {
            Memory::Nothing => Local::Empty,
            Memory::List => Local::List(Box::new(self.list())),
            Memory::Packet | Memory::LongPacket => Local::Packet(self.packet(cell.memory)),
            Memory::Part => Local::Part(part),
            Memory::Key => Local::Key(KeyPart { key: KEY, offset: 0, len: BLOCK_BYTES }, on?),
        };
        let (there, imm) = (self.far.remote(AT as u64), cell.flags.imm.then_some(IMM));
        let into = |local| match local {
            Local::Packet(packet) => Word::Packet(packet),
            _ => Word::Part(part),
        };
        Some(match cell.what {
            What::Send => Operation::Transfer { transfer: Transfer::send(imm), local },
            What::SendWithInvalidate => {
                Operation::Transfer { transfer: Transfer::SendWithInvalidate { rkey: self.rkey(1) }, local }
            }
            What::Write => Operation::Transfer { transfer: Transfer::write(there, imm), local },
            What::Read => Operation::Transfer { transfer: Transfer::Read { from: there, on: on? }, local },
            What::CompareSwap => {
                let atomic = Atomic::CompareSwap { at: there, compare: word(THERE), swap: 7 };
                Operation::Atomic { atomic, into: into(local), on: on? }
            }
            What::FetchAdd => {
                Operation::Atomic { atomic: Atomic::FetchAdd { at: there, add: 7 }, into: into(local), on: on? }
            }
            What::LocalInvalidate => Operation::LocalInvalidate { rkey: self.rkey(0) },
            What::Bind => Operation::Bind { window: WINDOW, part, access: Access::REMOTE_WRITE },
            What::Sign => {
                let part = Part { span: Span::from(1024..1024 + BLOCK_BYTES + 4), ..part };
                Operation::Sign { key: KEY, part, blocks: BlockSignature::in_memory(domain()), on: on? }
            }
            What::Respond => {
                let invalidate = matches!(cell.state, State::Rts | State::Sqd).then(|| self.rkey(1));
                Operation::Respond { key: KEY, invalidate, local, on: on? }
            }
        })
    }

    /// The key of a side's window.
    fn rkey(&self, side: usize) -> u32 {
        self.windows[side].remote().map_or(1, |remote: Remote| remote.rkey)
    }
}

fn domain() -> Domain {
    Domain::Crc(BlockSize::B512, Crc { kind: CrcKind::Crc32c, seed: Seed::Ones })
}

fn send_options<T: Carrier>(flags: Flags, fence: T::Fence) -> SendOptions<T> {
    let Flags { imm, solicited, signaled, .. } = flags;
    let (imm, destination) = (imm.then_some(IMM), DestinationId::default());
    SendOptions { imm, solicited, fence, signaled, destination, comes_back: false }
}
