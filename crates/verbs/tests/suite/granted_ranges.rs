//! The memory that a peer reaches through a window or an indirect key: every range around the
//! granted one, and far from it, by WRITE, READ and atomic, against an oracle that knows each
//! byte's place.

use crate::common::{Options, Side, bring_up, bytes, init_spec, only_soft, spec};
use verbline_verbs::expert::{MemoryWindow, WindowKind};
use verbline_verbs::rdma::{PeerMr, Remote};
use verbline_verbs::signature::{
    BlockSignature, BlockSize, Domain, KeyConfig, KeyLayout, KeySpec, QpSignature, SignatureKey, Strip, T10Dif,
};
use verbline_verbs::{Access, InitSpec, QpSpec, SendOptions, Status, Transport, WrKind};

const REGION_BYTES: usize = 4096;
/// The memory of the requesting side, which requests more than exists.
const NEAR_BYTES: usize = 2 * REGION_BYTES;
const HERE: u8 = 0x11;
const DATA_BYTES: usize = 512;
/// A block with its protection information.
const BLOCK_BYTES: usize = 520;

/// Granted parts of the region. Each byte has a number, by which the peer addresses it.
#[derive(Clone, Debug)]
enum Shape {
    Window(WindowKind, usize, u32),
    /// Start and length of each slice.
    List(Vec<(usize, u32)>),
    /// Repeat count, and for each strip its start, its length and the skipped bytes behind it.
    Strips(u32, Vec<(usize, u32, u32)>),
    /// This many blocks from an offset on, of which only the data is on the wire.
    Blocks(usize, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Write,
    Read,
    FetchAdd,
}

/// A request.
#[derive(Clone, Copy, Debug)]
struct Asked {
    how: How,
    /// The number of the first byte; it may be before the first existing one.
    first: u64,
    len: u32,
}

impl Shape {
    /// The offset in the region of the byte of that number, if it is granted. Parts of a strip
    /// outside the region contain no byte.
    fn place(&self, number: u64) -> Option<usize> {
        match self {
            Shape::Window(_, start, len) => (number < u64::from(*len)).then(|| start + number as usize),
            Shape::List(slices) => {
                let mut before = 0;
                slices.iter().find_map(|&(start, len)| {
                    let at = number.checked_sub(before).filter(|at| *at < u64::from(len));
                    before += u64::from(len);
                    at.map(|at| start + at as usize)
                })
            }
            Shape::Strips(repeat, strips) => {
                let round_bytes: u64 = strips.iter().map(|&(_, len, _)| u64::from(len)).sum();
                let (round, mut at) = (number / round_bytes, number % round_bytes);
                for &(start, len, skip) in strips {
                    if at < u64::from(len) {
                        let stride = u128::from(len) + u128::from(skip);
                        let place = start as u128 + stride * u128::from(round) + u128::from(at);
                        return (round < u64::from(*repeat) && place < REGION_BYTES as u128).then_some(place as usize);
                    }
                    at -= u64::from(len);
                }
                None
            }
            Shape::Blocks(start, blocks) => {
                let (block, at) = (number / DATA_BYTES as u64, number % DATA_BYTES as u64);
                (block < *blocks as u64).then(|| start + block as usize * BLOCK_BYTES + at as usize)
            }
        }
    }

    /// The places of all requested bytes, if all are granted.
    fn places(&self, asked: &Asked) -> Option<Vec<usize>> {
        let is_whole = |number: u64| number.is_multiple_of(DATA_BYTES as u64);
        if matches!(self, Shape::Blocks(..)) && !(is_whole(asked.first) && is_whole(asked.len.into())) {
            return None;
        }
        (0..u64::from(asked.len)).map(|at| self.place(asked.first.checked_add(at)?)).collect()
    }

    /// The number of granted bytes.
    fn len(&self) -> u64 {
        match self {
            Shape::Window(_, _, len) => u64::from(*len),
            Shape::List(slices) => slices.iter().map(|&(_, len)| u64::from(len)).sum(),
            Shape::Strips(repeat, strips) => {
                strips.iter().map(|&(_, len, _)| u64::from(len)).sum::<u64>() * u64::from((*repeat).min(4))
            }
            Shape::Blocks(_, blocks) => (blocks * DATA_BYTES) as u64,
        }
    }

    /// Numbers where a range begins or ends, and some that overflow could map back into the granted
    /// range.
    fn edges(&self) -> Vec<u64> {
        let mut edges = vec![0, self.len()];
        match self {
            Shape::Window(..) => {}
            Shape::List(slices) => edges.push(slices[0].1.into()),
            Shape::Strips(_, strips) => {
                edges.extend([strips[0].1.into(), self.len() / 2]);
                // The round whose start overflows to the square of seven before the first.
                let round = (1 << 32) - 7;
                edges.push(round * strips.iter().map(|&(_, len, _)| u64::from(len)).sum::<u64>());
            }
            Shape::Blocks(..) => {
                let block = DATA_BYTES as u64;
                // The first block whose offset in memory exceeds 64 bits.
                let beyond = u64::MAX / BLOCK_BYTES as u64 + 1;
                edges.extend([block, block.wrapping_neg(), beyond * block]);
            }
        }
        edges.extend([1 << 32, 1 << 63]);
        edges
    }

    fn lens(&self) -> Vec<u32> {
        match self {
            Shape::Blocks(..) => vec![8, 512, 1024, 1536],
            _ => vec![1, 8, 9, self.len() as u32, self.len() as u32 + 1],
        }
    }

    fn asked(&self) -> Vec<Asked> {
        let mut all = Vec::new();
        let steps: &[i64] = if matches!(self, Shape::Blocks(..)) { &[0, 8] } else { &[-9, -8, -1, 0, 1] };
        for edge in self.edges() {
            for first in steps.iter().map(|step| edge.wrapping_add_signed(*step)) {
                all.extend(
                    self.lens()
                        .into_iter()
                        .flat_map(|len| [How::Write, How::Read].map(|how| Asked { how, first, len })),
                );
                all.push(Asked { how: How::FetchAdd, first, len: 8 });
            }
        }
        all
    }
}

/// Two connected queue pairs, and a region of the second that is granted in part.
struct Rig {
    options: Options,
    a: Side,
    b: Side,
    near: PeerMr,
    far: PeerMr,
}

/// The object that grants access, as long as it is kept.
enum Granted {
    Window(MemoryWindow),
    Key(SignatureKey),
}

impl Granted {
    fn remote(&self) -> Remote {
        match self {
            Granted::Window(window) => window.remote().expect("it is bound"),
            Granted::Key(key) => key.remote(0),
        }
    }
}

impl Rig {
    fn new() -> Rig {
        let options = Options::new(Transport::Rc);
        let (a, b) = (Side::new("soft0", &options, 1), Side::new("soft1", &options, 2));
        let (near, far) = (a.peer_region(NEAR_BYTES, all()), b.peer_region(REGION_BYTES, all()));
        let mut rig = Rig { options, a, b, near, far };
        rig.connect();
        rig
    }

    fn connect(&mut self) {
        for (side, tag) in [(&mut self.a, 1), (&mut self.b, 2)] {
            while side.poll(|_, _, _| ()) > 0 {}
            let spec = QpSpec { signature: QpSignature::Keys, ..spec(&self.options, &side.cq, tag) };
            side.qp = side.pd.create_qp(&spec).unwrap();
            side.qp.to_init(&InitSpec { access: self.options.access, ..init_spec() }).unwrap();
        }
        let (to_a, to_b) = (self.a.qp.endpoint(), self.b.qp.endpoint());
        bring_up(&mut self.a, &to_b, &self.options);
        bring_up(&mut self.b, &to_a, &self.options);
    }

    fn grant(&mut self, shape: &Shape, access: Access) -> Granted {
        let slice = |start, len| self.far.slice(start, len).expect("it is inside");
        let layout = match shape {
            Shape::Window(kind, start, len) => {
                let (mut window, part) = (self.b.pd.alloc_mw(*kind).unwrap(), slice(*start, *len));
                self.b.qp.rc().unwrap().bind_window(&mut window, part, access, SendOptions::default()).unwrap();
                assert_eq!(done(&mut self.b), Status::SUCCESS);
                return Granted::Window(window);
            }
            Shape::List(slices) => KeyLayout::list(slices.iter().map(|&(start, len)| slice(start, len))),
            Shape::Strips(repeat, strips) => {
                let strip = |&(start, len, skip_bytes): &_| Strip { first: slice(start, len), skip_bytes };
                KeyLayout::interleaved(*repeat, strips.iter().map(strip))
            }
            Shape::Blocks(start, blocks) => KeyLayout::list([slice(*start, (blocks * BLOCK_BYTES) as u32)]),
        };
        let mut key = self.b.pd.create_signature_key(&KeySpec::default()).unwrap();
        // Memory that only its own side wrote is granted by LOCAL_WRITE.
        let mut config = KeyConfig::new().access(access | Access::LOCAL_WRITE).layout(layout);
        if matches!(shape, Shape::Blocks(..)) {
            config = config.signature(BlockSignature::in_memory(domain()));
        }
        self.b.qp.rc().unwrap().configure_key(&mut key, config, SendOptions::default()).unwrap();
        assert_eq!(done(&mut self.b), Status::SUCCESS);
        Granted::Key(key)
    }

    /// Sends the request, and compares its outcome with the oracle. False if the connection is
    /// over.
    fn ask(&mut self, shape: &Shape, access: Access, remote: Remote, asked: &Asked) -> bool {
        let there: Vec<u8> = (0..REGION_BYTES).map(|at| 0x80 | at as u8).collect();
        self.near.write_from(0, &[HERE; NEAR_BYTES]).unwrap();
        self.far.write_from(0, &there).unwrap();
        let (part, to) = (self.near.slice(0, asked.len).unwrap(), remote.offset(asked.first));
        let options = SendOptions::default();
        match asked.how {
            How::Write => self.a.qp.rc().unwrap().write(part, to, options),
            How::Read => self.a.qp.rc().unwrap().read(part, to, options),
            How::FetchAdd => self.a.qp.rc().unwrap().fetch_add(part, to, 1, options),
        }
        .unwrap();
        let status = done(&mut self.a);
        let what = format!("{shape:x?}, {access:?}, {asked:x?}");
        let (near, far) = (bytes_of(&self.near), bytes_of(&self.far));
        let need = match asked.how {
            How::Write => Access::REMOTE_WRITE,
            How::Read => Access::REMOTE_READ,
            How::FetchAdd => Access::REMOTE_ATOMIC,
        };
        // An atomic through an indirect key is not specified, and a word must be contiguous.
        let is_reachable = asked.how != How::FetchAdd || matches!(shape, Shape::Window(..));
        let places = shape.places(asked).filter(|_| access.contains(need) && is_reachable);
        let is_word = |places: &[usize]| asked.how != How::FetchAdd || places[0].is_multiple_of(8);
        let Some(places) = places.filter(|places| is_word(places)) else {
            assert_ne!(status, Status::SUCCESS, "{what}: nobody granted it");
            assert_eq!((near, far), (vec![HERE; NEAR_BYTES], there), "{what}: no byte moved");
            return false;
        };
        assert_eq!(status, Status::SUCCESS, "{what}: it is granted");
        let (mut ours, mut theirs) = (vec![HERE; NEAR_BYTES], there.clone());
        match asked.how {
            How::Write => places.iter().for_each(|at| theirs[*at] = HERE),
            How::Read => ours.iter_mut().zip(&places).for_each(|(ours, at)| *ours = there[*at]),
            How::FetchAdd => {
                let word = &there[places[0]..places[0] + 8];
                ours[..8].copy_from_slice(word);
                let sum = u64::from_ne_bytes(word.try_into().unwrap()) + 1;
                theirs[places[0]..places[0] + 8].copy_from_slice(&sum.to_ne_bytes());
            }
        }
        if let (How::Write, Shape::Blocks(..)) = (asked.how, shape) {
            // Protection information is behind the blocks written, and nowhere else.
            for at in places.iter().skip(DATA_BYTES - 1).step_by(DATA_BYTES) {
                let protection = at + 1..at + 1 + BLOCK_BYTES - DATA_BYTES;
                assert_ne!(far[protection.clone()], there[protection.clone()], "{what}: it is protected");
                theirs[protection.clone()].copy_from_slice(&far[protection]);
            }
        }
        assert_eq!((near, far), (ours, theirs), "{what}");
        true
    }
}

fn domain() -> Domain {
    Domain::T10Dif(BlockSize::B512, T10Dif::type_1(0xabcd, 7))
}

fn all() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC | Access::MW_BIND
}

fn done(side: &mut Side) -> Status {
    side.wait_for(WrKind::Op, |qp, freed, completion| {
        drop(qp.op_done(completion, freed).unwrap());
        completion.status()
    })
}

fn bytes_of(mr: &PeerMr) -> Vec<u8> {
    bytes(mr, 0, mr.len_bytes())
}

/// Judges all requests of these shapes and rights, and returns how many were granted and how many
/// were not.
fn judge(shapes: &[Shape], rights: &[Access]) -> [usize; 2] {
    let (mut rig, mut counts) = (Rig::new(), [0; 2]);
    for shape in shapes {
        for &access in rights {
            let mut granted = rig.grant(shape, access);
            for asked in shape.asked() {
                let is_granted = rig.ask(shape, access, granted.remote(), &asked);
                counts[usize::from(!is_granted)] += 1;
                if !is_granted {
                    // A refused request ends the connection, and a window of type 2 belongs to one
                    // QP.
                    rig.connect();
                    granted = rig.grant(shape, access);
                }
            }
        }
    }
    counts
}

#[test]
fn a_window_grants_its_part_for_its_rights_and_nothing_around_it() {
    only_soft!("rdma_rxe of Linux 6.1 checks the region's bounds and not the window's");
    let parts = [(0, 8), (1024, 64), (1028, 61), (REGION_BYTES - 64, 64), (0, REGION_BYTES as u32)];
    let kinds = [WindowKind::Type1, WindowKind::Type2];
    let shapes: Vec<_> =
        kinds.into_iter().flat_map(|kind| parts.map(|(start, len)| Shape::Window(kind, start, len))).collect();
    let rights = [
        Access::REMOTE_READ,
        Access::REMOTE_WRITE,
        Access::REMOTE_ATOMIC,
        Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
    ];
    let [granted, refused] = judge(&shapes, &rights);
    assert!(granted > 200 && refused > 2_000, "{granted} granted, {refused} refused");
}

#[test]
fn an_indirect_key_grants_its_layout_for_its_rights_and_nothing_around_it() {
    only_soft!("of kernel devices only mlx5 cards have signature offload");
    let shapes = [
        Shape::List(vec![(1024, 64)]),
        Shape::List(vec![(2048, 24), (64, 40)]),
        Shape::List(vec![(0, REGION_BYTES as u32)]),
        Shape::Strips(4, vec![(512, 16, 48), (2048, 8, 0)]),
        // Rounds that lie outside the region.
        Shape::Strips(100, vec![(3968, 64, 0)]),
        // Rounds behind the highest address: 2^32 - 7 of them are 49 bytes less than 2^64.
        Shape::Strips(u32::MAX, vec![(1024, 8, u32::MAX)]),
        Shape::Blocks(1024, 2),
    ];
    let rights = [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_READ | Access::REMOTE_WRITE];
    let [granted, refused] = judge(&shapes, &rights);
    assert!(granted > 100 && refused > 1_000, "{granted} granted, {refused} refused");
}
