//! A queue pair whose peer is elsewhere: translates its attributes and its work requests for the
//! transport.

use crate::data_path::errors::Errors;
use crate::data_path::execute;
use crate::data_path::poster::{Poster, Refused};
use crate::data_path::sge_list::{Sources, Targets, move_bytes};
use crate::key_table;
use crate::objects::device::{INLINE_BYTES_MAX, SGE_MAX};
use crate::objects::qp::Qp;
use crate::objects::qp_table::{State, Transport};
use crate::queues::wr::{SendWr, sge_bytes};
use crate::wire::address_of;
use crate::wire::device_wire::Wire;
use rdma_sys::ibv_wr_opcode::*;
use rdma_sys::*;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;
use verbline_roce::transport::{
    Capacity, Changes, Mtu, Peer, QueuePair, Receives, Receiving, Retries, Rights, Sending, Serving,
};
use verbline_roce::wire::{Addresses, AtomicExtension, AtomicOp, Psn, Qpn, Route, SendEnd, WriteEnd};
use verbline_roce::{Data, Operation, Owner, PostError, Remote, SendRequest, Sge};

/// The most bytes in flight from one queue pair: as much as a socket's buffer of Linux's default
/// size holds.
const WINDOW_BYTES: u32 = 128 << 10;
/// Room for the transport's completions of receives, which are taken after each datagram.
const COMPLETIONS: usize = 16;
/// The most READs and atomics in flight.
const READS_MAX: u8 = 16;

/// The addresses of the queue pair's path, if it goes over the wire of its device.
pub(super) fn leads_to(qp: &Qp, wire: &Wire) -> Option<Addresses> {
    let known = qp.attributes().copied();
    let path = known.ah_attr;
    if path.is_global == 0 || qp.is_datagram() || usize::from(path.grh.sgid_index) != wire.gid_index() {
        return None;
    }
    // SAFETY: any sixteen bytes are a GID.
    let gid = unsafe { path.grh.dgid.raw };
    if wire.is_within(&gid, known.dest_qp_num) {
        return None;
    }
    Addresses::new(wire.address().ip(), address_of(gid))
}

/// Makes the transport's queue pair, which receives from its peer.
pub(super) fn open(qp: &Qp, addresses: Addresses, source_port: u16) -> Option<QueuePair> {
    let known = qp.attributes().copied();
    let capacity = Capacity {
        sends: qp.cap.max_send_wr as usize,
        send_sges: qp.cap.max_send_sge as usize,
        inline_bytes: qp.cap.max_inline_data as usize,
        receive_sges: SGE_MAX as usize,
    };
    let owner = Owner { domain: qp.pd, qpn: Qpn::new(qp.qpn) };
    let receives = Receives::Shared { queue: qp.qpn, completions: COMPLETIONS };
    let mut made = QueuePair::new(owner, rights(&known), capacity, receives);
    let route = route(&known, addresses, source_port);
    let mtu = Mtu::of_code(known.path_mtu as u8)?;
    let peer = Peer { route, qpn: Qpn::new(known.dest_qp_num), psn: Psn::new(known.rq_psn), mtu };
    let receiving = match qp.transport {
        Transport::Rc => Receiving::Rc(peer, serving(&known)),
        _ => Receiving::Uc(peer),
    };
    made.receive_from(receiving).ok()?;
    Some(made)
}

/// Makes it send from now on.
pub(super) fn start(qp: &Qp, made: &mut QueuePair) {
    let known = qp.attributes().copied();
    let psn = Psn::new(known.sq_psn);
    let sending = if qp.transport == Transport::Rc { Sending::Rc(psn, retries(&known)) } else { Sending::Uc(psn) };
    // It receives by the same transport, and sends for the first time. So an error only means that
    // it has failed meanwhile, and flushes its work requests.
    let _ = made.start_sending(sending);
}

/// Applies changed attributes. A path that isn't over the wire keeps the old route.
pub(super) fn change(qp: &Qp, addresses: Option<Addresses>, source_port: u16, made: &mut QueuePair) {
    let known = qp.attributes().copied();
    let route = addresses.map(|addresses| route(&known, addresses, source_port));
    made.change(&Changes { rights: rights(&known), route, serving: serving(&known), retries: retries(&known) });
}

fn rights(known: &ibv_qp_attr) -> Rights {
    let has = |right: u32| known.qp_access_flags & right != 0;
    Rights {
        write: has(key_table::REMOTE_WRITE),
        read: has(key_table::REMOTE_READ),
        atomic: has(key_table::REMOTE_ATOMIC),
    }
}

fn route(known: &ibv_qp_attr, addresses: Addresses, source_port: u16) -> Route {
    Route { addresses, source_port, traffic_class: known.ah_attr.grh.traffic_class }
}

fn serving(known: &ibv_qp_attr) -> Serving {
    let reads = known.max_dest_rd_atomic.min(READS_MAX);
    Serving { reads, rnr_timer: known.min_rnr_timer, ..Serving::default() }
}

fn retries(known: &ibv_qp_attr) -> Retries {
    let mtu_bytes = Mtu::of_code(known.path_mtu as u8).map_or(256, Mtu::bytes);
    Retries {
        timeout: known.timeout,
        retry_count: known.retry_cnt,
        rnr_retry: known.rnr_retry,
        reads: known.max_rd_atomic.clamp(1, READS_MAX),
        window_packets: (WINDOW_BYTES / mtu_bytes).max(2),
    }
}

/// Posts the list to a queue pair whose peer is elsewhere.
pub(super) fn post<'a>(
    wire: &Wire,
    poster: Poster<'_>,
    list: SendWr<'a>,
    errors: &mut Errors,
) -> Result<(), Refused<'a>> {
    let qp: &Qp = &poster;
    let mut inner = wire.lock();
    let mut next = Some(list);
    let mut posted = Ok(());
    while let Some(wr) = next {
        let taken = post_one(poster, wr, |request, opcode| {
            match inner.queue_pairs.post(qp.qpn, request, wr.wr_id, opcode) {
                // It failed before it was ever able to send.
                Err(PostError::NotReady) if qp.state() == State::Err => {
                    execute::flush(qp, wr, request.id, errors);
                    Ok(())
                }
                taken => taken,
            }
        });
        if let Err(code) = taken {
            posted = Err((code, wr));
            break;
        }
        next = wr.next();
    }
    inner.send(poster.pinned, errors);
    wire.wake_in_time(inner);
    posted
}

fn post_one(
    poster: Poster<'_>,
    wr: SendWr<'_>,
    post: impl FnOnce(&SendRequest<'_>, u32) -> Result<(), PostError>,
) -> Result<(), c_int> {
    let qp: &Qp = &poster;
    execute::validate(qp, wr)?;
    let operation = operation(qp, wr)?;
    // Only the used part of both is written: most messages are far shorter, and a list pays for
    // each.
    let mut inline = [const { MaybeUninit::<u8>::uninit() }; INLINE_BYTES_MAX as usize];
    let mut sges = [const { MaybeUninit::<Sge>::uninit() }; SGE_MAX as usize];
    let data = if wr.is_inline() {
        let bytes = wr.sges().iter().map(sge_bytes).sum::<u64>();
        let inline = zeroed(&mut inline[..bytes as usize]);
        let (mut from, mut to) = (Sources::new(poster.pinned), Targets::new(poster.pinned));
        from.add_list(qp.pd, wr).map_err(|_| libc::EINVAL)?;
        to.add_own(inline);
        move_bytes(&to, &from, bytes);
        Data::Inline(inline)
    } else {
        let of_program = |sge: &ibv_sge| Sge { addr: sge.addr, len: sge_bytes(sge) as u32, key: sge.lkey };
        Data::Memory(written(&mut sges[..wr.sges().len()], wr.sges().iter().map(of_program)))
    };
    let depth = qp.cap.max_send_wr;
    let position = qp.sq.posted();
    if qp.sq.room(depth).0 == 0 {
        return Err(libc::ENOMEM);
    }
    let has = |flag: ibv_send_flags| wr.send_flags & flag.0 != 0;
    let request = SendRequest {
        id: position,
        operation,
        data,
        signaled: execute::is_signaled(qp, wr),
        solicited: wr.is_solicited(),
        fence: has(ibv_send_flags::IBV_SEND_FENCE),
    };
    post(&request, execute::wc_opcode(wr.opcode)).map_err(|why| match why {
        PostError::Full { .. } => libc::ENOMEM,
        _ => libc::EINVAL,
    })?;
    if operation == Operation::Local {
        // The wire's lock is held: nobody carries it out before it is kept.
        qp.sq.pending.lock().keep_alone(wr, position);
    }
    qp.sq.advance(position + 1);
    Ok(())
}

/// Writes zeros to all bytes.
fn zeroed(bytes: &mut [MaybeUninit<u8>]) -> &mut [u8] {
    bytes.fill(MaybeUninit::new(0));
    // SAFETY: each was written just above.
    unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) }
}

/// Writes these values to the first places. There must be enough places.
fn written(places: &mut [MaybeUninit<Sge>], values: impl Iterator<Item = Sge>) -> &[Sge] {
    let count = places.iter_mut().zip(values).map(|(place, value)| _ = place.write(value)).count();
    // SAFETY: `count` of them were written just above.
    unsafe { std::slice::from_raw_parts(places.as_ptr().cast(), count) }
}

/// The operation of a work request, or an `errno`.
fn operation(qp: &Qp, wr: SendWr<'_>) -> Result<Operation, c_int> {
    let rdma = wr.rdma();
    let remote = Remote { addr: rdma.remote_addr, rkey: rdma.rkey };
    // The program has it in network order.
    let immediate = || u32::from_be(wr.imm_or_rkey());
    let reads = || {
        // Relaxed: changed by the control path only.
        if qp.sq.max_rd_atomic.load(Ordering::Relaxed) == 0 { Err(libc::EINVAL) } else { Ok(()) }
    };
    Ok(match wr.opcode {
        IBV_WR_SEND => Operation::Send(SendEnd::Plain),
        IBV_WR_SEND_WITH_IMM => Operation::Send(SendEnd::Immediate(immediate())),
        IBV_WR_SEND_WITH_INV => Operation::Send(SendEnd::Invalidate(wr.imm_or_rkey())),
        IBV_WR_RDMA_WRITE => Operation::Write(remote, WriteEnd::Plain),
        IBV_WR_RDMA_WRITE_WITH_IMM => Operation::Write(remote, WriteEnd::Immediate(immediate())),
        IBV_WR_RDMA_READ => {
            reads()?;
            Operation::Read(remote)
        }
        IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => {
            reads()?;
            // SAFETY: integers, in whichever arm they were written.
            let atomic = unsafe { wr.wr.atomic };
            let op = if wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD {
                AtomicOp::FetchAdd(atomic.compare_add)
            } else {
                AtomicOp::CompareSwap { compare: atomic.compare_add, swap: atomic.swap }
            };
            Operation::Atomic(AtomicExtension { addr: atomic.remote_addr, rkey: atomic.rkey, op })
        }
        IBV_WR_BIND_MW | IBV_WR_LOCAL_INV => Operation::Local,
        // The transport has no place yet for reading keys that sign.
        _ => return Err(libc::EOPNOTSUPP),
    })
}
