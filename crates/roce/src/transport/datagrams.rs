//! Receiving datagrams: each is one packet, from any sender.

use crate::memory::Memory;
use crate::transport::counters::Discard;
use crate::transport::inbox::Message;
use crate::transport::responder::Serve;
use crate::wire::{Bth, Deth, Route, SendEnd, ip};
use crate::work::{Completed, Source};

/// Takes in a datagram of `len` bytes. One without a place is discarded silently, and no queue pair
/// fails: it could be a stranger's.
pub(crate) fn datagram<M: Memory>(
    cx: &mut Serve<'_, M>,
    (qkey, mtu): (u32, u32),
    route: &Route,
    len: usize,
    bth: &Bth,
    (deth, immediate): (Deth, Option<u32>),
    payload: &[u8],
) -> Result<(), Discard> {
    if deth.qkey != qkey {
        return Err(Discard::Key);
    }
    if payload.len() > mtu as usize {
        return Err(Discard::Unfitting);
    }
    // The payload first: if it has no place, the receive stays for the next datagram.
    let is_placed = cx.inbox.hold(cx.memory)
        && cx.inbox.place(cx.owner, cx.memory, ip::BEFORE_MESSAGE_BYTES as u64, payload).is_ok()
        && cx.inbox.place(cx.owner, cx.memory, 0, &ip::before_message(route, len)).is_ok();
    if !is_placed {
        return Err(Discard::NoReceive);
    }
    let completed = Completed::Receive(immediate.map_or(SendEnd::Plain, SendEnd::Immediate));
    let source = Some(Source { addr: route.addresses.source(), qpn: deth.source });
    let bytes = (ip::BEFORE_MESSAGE_BYTES + payload.len()) as u32;
    cx.inbox.complete(Message { completed, bytes, solicited: bth.solicited, source });
    Ok(())
}
