//! A whole packet: reading one, and writing one in place around its payload.

use crate::wire::extension::{ATOMIC_BYTES, Reader, WORD_BYTES, Writer};
use crate::wire::header::{BTH_BYTES, Bth};
use crate::wire::icrc::{self, ICRC_BYTES};
use crate::wire::opcode::Segment;
use crate::wire::route::Route;

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The fields that all packets have.
    pub bth: Bth,
    /// The operation.
    pub segment: Segment,
    /// Its part of the message.
    pub payload: &'a [u8],
}

/// The most bytes of a packet beside its payload: headers, pad and ICRC.
pub const HEADERS_MAX_BYTES: usize = BTH_BYTES + ATOMIC_BYTES + PAD_MAX_BYTES + ICRC_BYTES;
const PAD_MAX_BYTES: usize = WORD_BYTES - 1;
/// The only transport version.
const VERSION: u8 = 0;

/// Why bytes are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The bytes end within a header.
    #[error("{bytes} bytes end within the packet's headers")]
    Short {
        /// The number of bytes.
        bytes: usize,
    },
    /// No operation of RC, UC or UD has this opcode.
    #[error("opcode {opcode:#04x} is none of RC, UC or UD")]
    Opcode {
        /// The opcode.
        opcode: u8,
    },
    /// The transport version is not 0.
    #[error("transport version {version} is not 0")]
    Version {
        /// The version.
        version: u8,
    },
    /// Impossible pad bytes: more than the payload has, or the length is no multiple of four.
    #[error("{pad} pad bytes don't fit a payload of {payload} bytes")]
    Pad {
        /// The number in the header.
        pad: usize,
        /// Payload and pad.
        payload: usize,
    },
}

/// Reads a datagram without checking its ICRC ([`icrc::check`] does that).
pub fn read(datagram: &[u8]) -> Result<Packet<'_>, Malformed> {
    let short = Malformed::Short { bytes: datagram.len() };
    let (body, _) = datagram.split_last_chunk::<ICRC_BYTES>().ok_or(short)?;
    let mut reader = Reader(body);
    let head = Bth::read(&reader.take::<BTH_BYTES>().ok_or(short)?);
    if head.version != VERSION {
        return Err(Malformed::Version { version: head.version });
    }
    let segment = Segment::read(head.opcode, &mut reader).ok_or(short)?;
    let segment = segment.ok_or(Malformed::Opcode { opcode: head.opcode })?;
    let padded = reader.0;
    let len = padded.len().checked_sub(head.pad).filter(|_| padded.len() % WORD_BYTES == 0);
    let len = len.ok_or(Malformed::Pad { pad: head.pad, payload: padded.len() })?;
    Ok(Packet { bth: head.bth, segment, payload: &padded[..len] })
}

impl Packet<'_> {
    /// Writes the whole packet, with its ICRC; returns its length. `ip_id` as in [`seal`].
    ///
    /// # Panics
    /// If `out` has no room for the payload and [`HEADERS_MAX_BYTES`].
    pub fn write(&self, out: &mut [u8], route: &Route, ip_id: u16) -> usize {
        let len = self.write_unsealed(out);
        seal(out, len, route, ip_id)
    }

    /// Writes the packet without its pad and ICRC, which [`seal`] adds; returns its length.
    ///
    /// # Panics
    /// If `out` has no room for both.
    pub fn write_unsealed(&self, out: &mut [u8]) -> usize {
        let head = write_head(&self.bth, &self.segment, self.payload.len(), out);
        out[head..head + self.payload.len()].copy_from_slice(self.payload);
        head + self.payload.len()
    }
}

/// Writes everything before a payload of `payload` bytes; returns the payload's position.
pub(crate) fn write_head(bth: &Bth, segment: &Segment, payload: usize, out: &mut [u8]) -> usize {
    let mut writer = Writer { out, len: 0 };
    writer.put(bth.write(segment.opcode(), pad_of(payload)));
    segment.write(&mut writer);
    writer.len
}

fn pad_of(payload: usize) -> usize {
    payload.next_multiple_of(WORD_BYTES) - payload
}

/// The length of a datagram whose headers and payload have `len` bytes.
pub fn sealed_bytes(len: usize) -> usize {
    // Headers are multiples of four bytes, so the pad completes the whole to the next multiple.
    len + pad_of(len) + ICRC_BYTES
}

/// Ends a packet whose `len` bytes of headers and payload are in `out`: adds pad and ICRC. Returns
/// the datagram's length. `ip_id` is the identification that the IPv4 header will have. Linux gives
/// unfragmentable datagrams of an unconnected socket 0, and the segments that it cuts (GSO) their
/// index; a connected socket's go on from a number of its own.
pub fn seal(out: &mut [u8], len: usize, route: &Route, ip_id: u16) -> usize {
    let padded = sealed_bytes(len) - ICRC_BYTES;
    out[len..padded].fill(0);
    let sum = icrc::compute(&out[..padded], route, ip_id);
    out[padded..padded + ICRC_BYTES].copy_from_slice(&sum.to_le_bytes());
    padded + ICRC_BYTES
}
