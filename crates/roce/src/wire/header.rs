//! The base transport header (BTH), with which every packet begins, and packet sequence numbers: 24
//! bits that wrap.

/// The number of a queue pair: 24 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Qpn(u32);

impl Qpn {
    /// The queue pair of connection management.
    pub const MANAGEMENT: Qpn = Qpn(1);
    /// Stands for all members of a multicast group.
    pub const MULTICAST: Qpn = Qpn(0xFF_FFFF);

    /// The low 24 bits of a number.
    pub const fn new(number: u32) -> Qpn {
        Qpn(number & 0xFF_FFFF)
    }

    /// The number, below 2^24.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Whether no queue pair of a program has the number: 0 and 1 belong to management, and the
    /// last one to multicast.
    pub const fn is_reserved(self) -> bool {
        self.0 <= Qpn::MANAGEMENT.0 || self.0 == Qpn::MULTICAST.0
    }
}

/// The partition key on Ethernet: full members of the default partition.
pub const DEFAULT_PKEY: u16 = 0xFFFF;

/// The bytes of the header.
pub(crate) const BTH_BYTES: usize = 12;

/// The fields of the header that are independent of the operation and the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// The receiver's completion is a solicited event.
    pub solicited: bool,
    /// The migration state is "migrated". Cards set this bit, rxe does not, and receivers ignore
    /// it.
    pub migrated: bool,
    /// The partition.
    pub pkey: u16,
    /// A switch marked the packet: congestion ahead.
    pub forward_congestion: bool,
    /// The receiver reports marked packets.
    pub backward_congestion: bool,
    /// The receiver's queue pair.
    pub destination: Qpn,
    /// The sender wants an acknowledgement.
    pub ack_request: bool,
    /// The packet's number.
    pub psn: Psn,
}

const SOLICITED: u8 = 0x80;
const MIGRATED: u8 = 0x40;
const PAD_SHIFT: u8 = 4;
const PAD_MASK: u8 = 0x30;
const VERSION_MASK: u8 = 0x0F;
const FORWARD: u8 = 0x80;
const BACKWARD: u8 = 0x40;
const ACK_REQUEST: u8 = 0x80;

/// The parts of a parsed header: opcode, pad bytes, transport version, the rest.
pub(crate) struct Read {
    pub(crate) opcode: u8,
    pub(crate) pad: usize,
    pub(crate) version: u8,
    pub(crate) bth: Bth,
}

impl Bth {
    /// A packet of the default partition that does not ask for an acknowledgement.
    pub fn new(destination: Qpn, psn: Psn) -> Bth {
        Bth {
            solicited: false,
            migrated: false,
            pkey: DEFAULT_PKEY,
            forward_congestion: false,
            backward_congestion: false,
            destination,
            ack_request: false,
            psn,
        }
    }

    pub(crate) fn write(&self, opcode: u8, pad: usize) -> [u8; BTH_BYTES] {
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let [_, q0, q1, q2] = self.destination.number().to_be_bytes();
        let [_, p0, p1, p2] = self.psn.number().to_be_bytes();
        let [k0, k1] = self.pkey.to_be_bytes();
        let second = flag(self.solicited, SOLICITED) | flag(self.migrated, MIGRATED) | (pad as u8) << PAD_SHIFT;
        let fifth = flag(self.forward_congestion, FORWARD) | flag(self.backward_congestion, BACKWARD);
        [opcode, second, k0, k1, fifth, q0, q1, q2, flag(self.ack_request, ACK_REQUEST), p0, p1, p2]
    }

    pub(crate) fn read(bytes: &[u8; BTH_BYTES]) -> Read {
        let [opcode, second, k0, k1, fifth, q0, q1, q2, ninth, p0, p1, p2] = *bytes;
        let bth = Bth {
            solicited: second & SOLICITED != 0,
            migrated: second & MIGRATED != 0,
            pkey: u16::from_be_bytes([k0, k1]),
            forward_congestion: fifth & FORWARD != 0,
            backward_congestion: fifth & BACKWARD != 0,
            destination: Qpn(u32::from_be_bytes([0, q0, q1, q2])),
            ack_request: ninth & ACK_REQUEST != 0,
            psn: Psn::new(u32::from_be_bytes([0, p0, p1, p2])),
        };
        Read { opcode, pad: usize::from((second & PAD_MASK) >> PAD_SHIFT), version: second & VERSION_MASK, bth }
    }
}

/// A packet sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

const BITS: u32 = 24;
const MASK: u32 = (1 << BITS) - 1;

impl Psn {
    /// The low 24 bits of a number.
    pub const fn new(number: u32) -> Psn {
        Psn(number & MASK)
    }

    /// The number, below 2^24.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The number `count` packets later.
    #[must_use]
    pub const fn plus(self, count: u32) -> Psn {
        Psn::new(self.0.wrapping_add(count))
    }

    /// The number before this one.
    #[must_use]
    pub const fn before(self) -> Psn {
        Psn::new(self.0.wrapping_sub(1))
    }

    /// How many packets this number is ahead of `other`; negative if it is behind, exact while both
    /// are within 2^23 of each other.
    pub const fn ahead_of(self, other: Psn) -> i32 {
        (self.0.wrapping_sub(other.0) << (32 - BITS)).cast_signed() >> (32 - BITS)
    }
}
