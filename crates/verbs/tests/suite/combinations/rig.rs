//! Posts one combination to a fresh pair of queue pairs, and determines its outcome.

use verbline_verbs::expert::{MemoryWindow, WindowKind};
use verbline_verbs::rdma::{PeerMr, WorkMemory};
use verbline_verbs::signature::{KeyConfig, KeyLayout, KeySpec, QpSignature, SignatureKey};
use verbline_verbs::{Access, InitSpec, QpSpec, RtrSpec, SendOptions, Status, Transport, WrKind};

use super::cell::{Became, Cell, Memory, Route, State, What, is_written};
use super::poison::Poison;
use crate::common::{Options, Side, bring_up, connect, init_spec, spec};

const REGION_BYTES: usize = 4096;
/// The offset in both regions of the bytes to move.
pub const AT: usize = 64;
/// The size of the block of a listed key.
pub const BLOCK_BYTES: u32 = 512;
pub const LONG_BYTES: usize = 200;
pub const HERE: u8 = 0x11;
pub const THERE: u8 = 0x22;
pub const IMM: u32 = 0x1234_5678;

pub struct Rig {
    options: Options,
    pub a: Side,
    b: Side,
    pub near: PeerMr,
    pub far: PeerMr,
    /// A key for eight bytes of `near`; next, one without a layout.
    pub key: SignatureKey,
    empty_key: SignatureKey,
    /// A window of each side, to invalidate and to bind.
    pub windows: [MemoryWindow; 2],
    /// A key to configure.
    pub fresh_key: SignatureKey,
    poison: Poison,
}

fn all() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC | Access::MW_BIND
}

impl Rig {
    pub fn new(transport: Transport) -> Rig {
        let options = Options { inline_bytes: 16, signal_every_wr: 100, cq_depth_wc: 64, ..Options::new(transport) };
        let (mut a, b) = (Side::new("soft0", &options, 0xa), Side::new("soft1", &options, 0xb));
        let (near, far) = (a.peer_region(REGION_BYTES, all()), b.peer_region(REGION_BYTES, all()));
        let no_blocks = KeySpec { signs_blocks: false, ..KeySpec::default() };
        let make = || a.pd.create_signature_key(&no_blocks).unwrap();
        let (mut key, empty_key, fresh_key) = (make(), make(), make());
        configure(&mut a, &mut key, &near);
        let windows = [&a, &b].map(|side| side.pd.alloc_mw(WindowKind::Type2).unwrap());
        Rig { options, a, b, near, far, key, empty_key, windows, fresh_key, poison: Poison::new() }
    }

    /// Posts the combination, and returns its outcome.
    pub fn run(&mut self, cell: &Cell) -> Became {
        if !is_written(cell) {
            return Became::Unwritten;
        }
        self.make_fresh(cell);
        self.poison.spread();
        let before = self.posted(cell);
        if !before {
            assert_eq!(self.a.qp.sends_outstanding(), 0, "{cell:?}: it was refused");
            self.assert_nothing_moved(cell);
            return Became::Refused;
        }
        match self.end(cell) {
            None if cell.state == State::Sqd => {
                self.assert_nothing_moved(cell);
                self.a.qp.resume().unwrap();
                match self.end(cell) {
                    Some(Status::SUCCESS) => {}
                    None if cell.route == Route::Batch && !cell.flags.signaled => {}
                    None => panic!("{cell:?}: it went on, and nothing came"),
                    Some(_) => {
                        self.assert_nothing_moved(cell);
                        return Became::Failed;
                    }
                }
                self.assert_moved(cell);
                Became::DoneLater
            }
            None => {
                self.assert_moved(cell);
                Became::DoneQuietly
            }
            Some(Status::SUCCESS) => {
                self.assert_moved(cell);
                Became::Done
            }
            Some(status) => {
                self.assert_nothing_moved(cell);
                if status == Status::WR_FLUSH_ERR { Became::Flushed } else { Became::Failed }
            }
        }
    }

    /// Creates new queue pairs in the cell's state, and memory that shows which bytes move.
    fn make_fresh(&mut self, cell: &Cell) {
        let signature = if cell.transport == Transport::Rc { QpSignature::Keys } else { QpSignature::None };
        for (side, tag) in [(&mut self.a, 0xa), (&mut self.b, 0xb)] {
            while side.poll(|_, _, _| ()) > 0 {}
            let spec = QpSpec { signature, max_send_sge: 2, ..spec(&self.options, &side.cq, tag) };
            side.qp = side.pd.create_qp(&spec).unwrap();
            side.qp.to_init(&InitSpec { access: self.options.access, ..init_spec() }).unwrap();
        }
        if cell.state == State::Reset {
            self.a.qp.to_reset().unwrap();
            return self.fill();
        }
        let (to_a, to_b) = (self.a.qp.endpoint(), self.b.qp.endpoint());
        bring_up(&mut self.b, &to_a, &self.options);
        assert_eq!(self.b.post_recvs(1), 1);
        match cell.state {
            State::Init if cell.transport == Transport::Ud => {
                let ah = self.a.pd.create_ah(&crate::common::to_gid(to_b.gid)).unwrap();
                self.a.qp.set_destination(&ah, to_b.qpn, to_b.qkey).unwrap();
            }
            State::Rtr if cell.transport == Transport::Ud => self.a.qp.to_rtr(&RtrSpec::datagram()).unwrap(),
            State::Rtr => self.a.qp.to_rtr(&RtrSpec::connected(to_b)).unwrap(),
            State::Init => {}
            _ => bring_up(&mut self.a, &to_b, &self.options),
        }
        self.bind_windows(cell);
        match cell.state {
            State::Sqd => self.a.qp.to_sqd(false).unwrap(),
            State::Err => self.a.qp.to_err().unwrap(),
            State::Sqe => self.break_sends(),
            _ => {}
        }
        self.fill();
    }

    fn fill(&self) {
        self.near.write_from(0, &[HERE; REGION_BYTES]).unwrap();
        self.far.write_from(0, &[THERE; REGION_BYTES]).unwrap();
    }

    /// Binds windows, as targets for invalidation.
    fn bind_windows(&mut self, cell: &Cell) {
        if matches!(cell.what, What::LocalInvalidate | What::SendWithInvalidate | What::Respond | What::Bind) {
            self.windows = [&self.a, &self.b].map(|side| side.pd.alloc_mw(WindowKind::Type2).unwrap());
        }
        let connected = matches!(cell.transport, Transport::Rc | Transport::Uc);
        if !connected || !matches!(cell.state, State::Rts | State::Sqd) {
            return;
        }
        let [ours, theirs] = &mut self.windows;
        match cell.what {
            What::LocalInvalidate => bind(&mut self.a, ours, &self.near),
            What::SendWithInvalidate | What::Respond => bind(&mut self.b, theirs, &self.far),
            _ => {}
        }
    }

    /// Posts a send whose memory the device cannot reach, which brings UC to SQE, and RC to ERR.
    fn break_sends(&mut self) {
        let range = self.empty_key.range(0, 8);
        match self.options.transport {
            Transport::Rc => self.a.qp.rc().unwrap().send(range, SendOptions::default()).unwrap(),
            _ => self.a.qp.uc().unwrap().send(range, SendOptions::default()).unwrap(),
        }
        let status = self.a.wait_for(WrKind::Op, |qp, freed, completion| {
            drop(qp.op_done(completion, freed).unwrap());
            completion.status()
        });
        assert_ne!(status, Status::SUCCESS);
    }

    /// The status of its completion; `None` if none comes.
    fn end(&mut self, cell: &Cell) -> Option<Status> {
        let (mut end, mut packet) = (None, None);
        // The software RNIC carries out what it can before the post returns.
        while self.a.poll(|qp, freed, completion| {
            end = Some(completion.status());
            match (cell.route, completion.kind()) {
                (Route::Listed, _) => {
                    _ = qp
                        .works_done(completion, freed, |_, back, _| packet = back.and_then(WorkMemory::into_packet))
                        .unwrap()
                }
                (_, WrKind::Op) => packet = qp.op_done(completion, freed).unwrap().into_packet(),
                _ => {
                    assert!(qp.send_done(completion, freed).unwrap() > 0);
                    packet = freed.pop();
                }
            }
        }) > 0
        {}
        let goes_in = match (cell.memory, cell.route) {
            // Inline packets of a batch come back at once.
            (Memory::Packet, Route::Batch) => false,
            (Memory::Nothing, route) => route == Route::Batch && packet.is_some(),
            (Memory::Packet | Memory::LongPacket, _) => true,
            _ => false,
        };
        assert_eq!(packet.is_some(), goes_in && end.is_some(), "{cell:?}: its packet comes back");
        end
    }

    /// The number of bytes that it moves.
    fn len(&self, cell: &Cell) -> usize {
        match cell.memory {
            Memory::Nothing => 0,
            Memory::LongPacket => LONG_BYTES,
            Memory::Key if cell.route == Route::Listed => BLOCK_BYTES as usize,
            _ => 8,
        }
    }

    fn assert_moved(&mut self, cell: &Cell) {
        let len = self.len(cell);
        // With a listed key, each block on the wire is followed by its protection information.
        let on_wire = if cell.memory == Memory::Key && cell.route == Route::Listed { len + 4 } else { len };
        let mut there = vec![THERE; REGION_BYTES];
        match cell.what {
            What::Write => there[AT..AT + len].fill(HERE),
            What::CompareSwap => there[AT..AT + 8].copy_from_slice(&7u64.to_ne_bytes()),
            What::FetchAdd => there[AT..AT + 8].copy_from_slice(&(word(THERE) + 7).to_ne_bytes()),
            _ => {}
        }
        let far = bytes_of(&self.far);
        assert_eq!(far[..AT + len], there[..AT + len], "{cell:?}");
        assert_eq!(far[AT + on_wire.max(8)..], there[AT + on_wire.max(8)..], "{cell:?}: no more than asked");
        let near = bytes_of(&self.near);
        let brings = cell.what == What::Read || cell.what.is_atomic();
        if brings && matches!(cell.memory, Memory::Part) {
            assert_eq!(near[AT..AT + 8], [THERE; 8], "{cell:?}");
        } else if !brings {
            assert_eq!(near, [HERE; REGION_BYTES], "{cell:?}");
        }
        let carries_imm = cell.flags.imm && matches!(cell.what, What::Send | What::Write);
        if cell.what.is_message() || (cell.what == What::Write && carries_imm) {
            let mut message = None;
            while self.b.poll(|qp, _, completion| {
                assert_eq!(completion.status(), Status::SUCCESS, "{cell:?}");
                message = Some((qp.recv_done(completion).unwrap().data().to_vec(), completion.imm()));
            }) > 0
            {}
            let (bytes, imm) = message.unwrap_or_else(|| panic!("{cell:?}: it came"));
            let sent = if cell.what == What::Write { 0 } else { len };
            assert_eq!(bytes.iter().take(sent).filter(|byte| **byte == HERE).count(), sent, "{cell:?}");
            assert_eq!(imm, carries_imm.then_some(IMM), "{cell:?}");
        }
    }

    fn assert_nothing_moved(&mut self, cell: &Cell) {
        assert_eq!(bytes_of(&self.far), [THERE; REGION_BYTES], "{cell:?}");
        assert_eq!(bytes_of(&self.near), [HERE; REGION_BYTES], "{cell:?}");
        let came = self.b.poll(|_, _, completion| panic!("{cell:?}: {completion:?}"));
        assert_eq!(came, 0);
    }

    /// Checks that no packet is held any more.
    pub fn finish(self) {
        let Rig { a, b, .. } = self;
        for mut side in [a, b] {
            let account = side.pool.account();
            while side.poll(|_, _, _| ()) > 0 {}
            let Side { qp, cache, pool, .. } = side;
            drop(qp);
            cache.flush();
            assert_eq!(pool.account().free, pool.packets(), "{account:?}");
        }
    }
}

fn bytes_of(mr: &PeerMr) -> Vec<u8> {
    let mut bytes = vec![0; REGION_BYTES];
    mr.read_into(0, &mut bytes).unwrap();
    bytes
}

fn bind(side: &mut Side, window: &mut MemoryWindow, mr: &PeerMr) {
    let slice = mr.slice(0, 8).unwrap();
    let access = Access::REMOTE_WRITE;
    match side.qp.transport() {
        Transport::Rc => side.qp.rc().unwrap().bind_window(window, slice, access, SendOptions::default()).unwrap(),
        _ => side.qp.uc().unwrap().bind_window(window, slice, access, SendOptions::default()).unwrap(),
    }
    let status = side.wait_for(WrKind::Op, |qp, freed, completion| {
        drop(qp.op_done(completion, freed).unwrap());
        completion.status()
    });
    assert_eq!(status, Status::SUCCESS);
}

/// Configures a key for eight bytes of the region, through an RC queue pair created for it.
fn configure(side: &mut Side, key: &mut SignatureKey, near: &PeerMr) {
    let options = Options::new(Transport::Rc);
    let (mut own, mut peer) = (Side::new("soft0", &options, 1), Side::new("soft1", &options, 2));
    let cq = side.context.create_cq(16, None).unwrap();
    own.qp = side.pd.create_qp(&QpSpec { signature: QpSignature::Keys, ..spec(&options, &cq, 1) }).unwrap();
    own.cq = cq;
    own.qp.to_init(&InitSpec { access: options.access, ..init_spec() }).unwrap();
    connect(&mut own, &mut peer, &options);
    let config = KeyConfig::new()
        .access(Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE)
        .layout(KeyLayout::list([near.slice(AT, 8).unwrap()]));
    own.qp.rc().unwrap().configure_key(key, config, SendOptions::default()).unwrap();
    let status = own.wait_for(WrKind::Op, |qp, freed, completion| {
        drop(qp.op_done(completion, freed).unwrap());
        completion.status()
    });
    assert_eq!(status, Status::SUCCESS);
}

pub fn word(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}
