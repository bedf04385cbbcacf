//! Writes blocks of pcapng (draft-ietf-opsawg-pcapng), little-endian, with times in nanoseconds.
//!
//! The pcap-file crate swaps the halves of the time in statistics in 2.0.0, its last release since
//! 2023.

use verbline_engine::CaptureDirection;

/// Ethernet frames.
pub(super) const LINKTYPE_ETHERNET: u16 = 1;
/// The first link type for private use.
pub(super) const LINKTYPE_USER0: u16 = 147;

pub(super) const SECTION: u32 = 0x0A0D_0D0A;
pub(super) const INTERFACE: u32 = 1;
pub(super) const STATISTICS: u32 = 5;
pub(super) const PACKET: u32 = 6;

const BYTE_ORDER: u32 = 0x1A2B_3C4D;
const END_OF_OPTIONS: u16 = 0;
const COMMENT: u16 = 1;
const APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const RESOLUTION: u16 = 9;
const FLAGS: u16 = 2;
const RECEIVED: u16 = 4;
pub(super) const DROPPED: u16 = 5;
/// The time resolution option for nanoseconds.
const NANOSECONDS: u8 = 9;
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// The content of a packet block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<'a> {
    pub(super) interface: u32,
    pub(super) unix_ns: u64,
    /// The bytes kept of it.
    pub(super) bytes: &'a [u8],
    /// The bytes of the whole packet.
    pub(super) len_bytes: usize,
    pub(super) direction: CaptureDirection,
}

/// The section header, which begins a file.
pub(super) fn section(out: &mut Vec<u8>, application: &str, comment: &str) {
    block(out, SECTION, |out| {
        word(out, BYTE_ORDER);
        // Version 1.0; length not given.
        out.extend_from_slice(&[1, 0, 0, 0]);
        out.extend_from_slice(&u64::MAX.to_le_bytes());
        option(out, COMMENT, comment.as_bytes());
        option(out, APPLICATION, application.as_bytes());
        option(out, END_OF_OPTIONS, &[]);
    });
}

/// An interface description.
pub(super) fn interface(out: &mut Vec<u8>, linktype: u16, name: &str) {
    block(out, INTERFACE, |out| {
        out.extend_from_slice(&linktype.to_le_bytes());
        // Reserved; no limit on a packet's length.
        out.extend_from_slice(&[0; 6]);
        option(out, INTERFACE_NAME, name.as_bytes());
        option(out, RESOLUTION, &[NANOSECONDS]);
        option(out, END_OF_OPTIONS, &[]);
    });
}

pub(super) fn packet(out: &mut Vec<u8>, packet: Packet<'_>) {
    block(out, PACKET, |out| {
        word(out, packet.interface);
        time(out, packet.unix_ns);
        word(out, packet.bytes.len() as u32);
        word(out, packet.len_bytes as u32);
        padded(out, packet.bytes);
        let flags = match packet.direction {
            CaptureDirection::Received => INBOUND,
            CaptureDirection::Sent => OUTBOUND,
            CaptureDirection::Within => 0,
        };
        option(out, FLAGS, &flags.to_le_bytes());
        option(out, END_OF_OPTIONS, &[]);
    });
}

/// The statistics of an interface.
pub(super) fn statistics(out: &mut Vec<u8>, interface: u32, unix_ns: u64, received: u64, dropped: u64) {
    block(out, STATISTICS, |out| {
        word(out, interface);
        time(out, unix_ns);
        option(out, RECEIVED, &received.to_le_bytes());
        option(out, DROPPED, &dropped.to_le_bytes());
        option(out, END_OF_OPTIONS, &[]);
    });
}

fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let from = out.len();
    word(out, kind);
    word(out, 0);
    body(out);
    let len = (out.len() - from + size_of::<u32>()) as u32;
    out[from + 4..from + 8].copy_from_slice(&len.to_le_bytes());
    word(out, len);
}

fn word(out: &mut Vec<u8>, word: u32) {
    out.extend_from_slice(&word.to_le_bytes());
}

/// A time, its high half first.
fn time(out: &mut Vec<u8>, unix_ns: u64) {
    word(out, (unix_ns >> 32) as u32);
    word(out, unix_ns as u32);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    // A plan's names have no length limit.
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    padded(out, value);
}

fn padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.resize(out.len() + bytes.len().next_multiple_of(4) - bytes.len(), 0);
}
