//! RoCE v2 without I/O: frames as bytes, and the transport of RDMA as state machines.
//!
//! This crate opens no socket, reads no clock and starts no thread. Its inputs are datagrams, work
//! requests and the time; its outputs are datagrams, completions and the next deadline. So a test
//! drives several engines over a simulated network by seed, and a device drives one over any
//! carrier of UDP.
//!
//! Guarantees: no `unsafe`; nothing is allocated once a queue pair is made; no bytes of a datagram
//! cause a panic, a loop, or growth. Names and numbers are those of the InfiniBand Architecture
//! Specification, volume 1, with its annex A17 (RoCE v2).
//!
//! # Parts
//! - [`wire`]: packets of RC, UC and UD as bytes, with the invariant CRC, and IP and UDP headers.
//! - [`transport`]: one queue pair. RC with go-back-N, retries, RNR, duplicate requests and the
//!   replay of atomics; UC; UD.
//! - [`Engine`]: many queue pairs, by number, in turns, with one deadline.
//! - [`cm`]: the messages of connection management in the format of `rdma_cm`, and the state
//!   machine that makes and ends connections with them.
//!
//! # Missing so far
//! - A link: `softnic` has one, over UDP sockets, with a thread that makes progress while a program
//!   doesn't poll. The example `udp_pingpong` runs the engine between two processes over plain
//!   sockets, one datagram a call. Raw frames are to come.
//! - Lost packets are repeated by go-back-N only. A loss halves the window, but ECN marks are not
//!   read. The engine discovers no path MTU, knows no groups, and migrates no paths.
//! - A socket doesn't report the IPv4 identification, which the CRC covers. So IPv4 datagrams from
//!   a socket are not checked ([`Icrc::Unknown`](transport::Icrc)).
//!
//! # Driving an engine
//! - [`Engine::post_send`] and [`Engine::post_receive`] take work requests. Scatter/gather lists
//!   and inline bytes are copied. Payloads stay in the program's memory until they are sent, and
//!   are read again for each retransmission.
//! - [`Engine::receive`] takes a datagram in, and [`Engine::transmit`] writes one into the caller's
//!   buffer. Call `transmit` after every other call until it returns nothing. A carrier that is
//!   full may stop calling: only state is kept, no datagrams.
//! - [`Engine::poll`] returns completions. A send's slot is free once its completion, or a later
//!   one, was polled, as in verbs.
//! - [`Engine::deadline_ns`] is the time of the next call of [`Engine::advance`].
//! - [`Memory`] accesses payloads: by key, address and right, by copies. An implementation over raw
//!   pointers keeps its `unsafe` to itself.
//!
//! # Mapping to a provider of verbs
//! `ibv_post_send` becomes [`QueuePair::post_send`](transport::QueuePair::post_send) for each work
//! request of the list, then a round of `transmit`; `ibv_poll_cq` becomes a round of `receive`,
//! `transmit` and `poll`, whose completions go to the CQ. RESET is a new queue pair, RTR is
//! [`receive_from`](transport::QueuePair::receive_from), RTS
//! [`start_sending`](transport::QueuePair::start_sending), ERR
//! [`fail`](transport::QueuePair::fail). Shared receive queues belong to the provider:
//! [`Memory::take_shared_receive`] takes from one. An [`Engine`] belongs to one caller at a time.
//! Several engines, one an lcore, share nothing, and a carrier steers datagrams by the
//! destination's number. The provider enforces the rules on keys, so they are the same on each
//! link.
//!
//! # Example: two engines
//! ```
//! use std::net::Ipv4Addr;
//! use verbline_roce::transport::*;
//! use verbline_roce::wire::{Addresses, AtomicOp, HEADERS_MAX_BYTES, Psn, Qpn, Route, SendEnd};
//! use verbline_roce::*;
//!
//! /// One buffer at address 0, which any key opens.
//! struct Buffer([u8; 4096]);
//!
//! impl Memory for Buffer {
//!     fn read(&mut self, from: Place, out: &mut [u8]) -> Result<(), Denied> {
//!         let at = from.addr as usize;
//!         out.copy_from_slice(self.0.get(at..at + out.len()).ok_or(Denied)?);
//!         Ok(())
//!     }
//!     fn write(&mut self, to: Place, bytes: &[u8]) -> Result<(), Denied> {
//!         let at = to.addr as usize;
//!         self.0.get_mut(at..at + bytes.len()).ok_or(Denied)?.copy_from_slice(bytes);
//!         Ok(())
//!     }
//!     fn check(&mut self, at: Place, len: u64) -> Result<(), Denied> {
//!         if at.addr.saturating_add(len) <= 4096 { Ok(()) } else { Err(Denied) }
//!     }
//!     fn atomic(&mut self, _: Place, _: AtomicOp) -> Result<u64, Denied> {
//!         Err(Denied)
//!     }
//!     fn invalidate(&mut self, _: Owner, _: u32) -> Result<(), Denied> {
//!         Err(Denied)
//!     }
//! }
//!
//! let addresses = Addresses::V4 { source: Ipv4Addr::new(10, 0, 0, 1), destination: Ipv4Addr::new(10, 0, 0, 2) };
//! let (qpns, psns) = ([Qpn::new(0x11), Qpn::new(0x12)], [Psn::new(7), Psn::new(9)]);
//! let mut engines = [0, 1].map(|own| {
//!     let capacity = Capacity { sends: 16, send_sges: 1, inline_bytes: 0, receive_sges: 1 };
//!     let owner = Owner { domain: 0, qpn: qpns[own] };
//!     let mut queue_pair = QueuePair::new(owner, Rights::default(), capacity, Receives::Own(16));
//!     let addresses = if own == 0 { addresses } else { addresses.reversed() };
//!     let route = Route::new(addresses, qpns[own].number(), qpns[1 - own].number());
//!     let peer = Peer { route, qpn: qpns[1 - own], psn: psns[1 - own], mtu: Mtu::B1024 };
//!     queue_pair.receive_from(Receiving::Rc(peer, Serving::default())).expect("a new one");
//!     queue_pair.start_sending(Sending::Rc(psns[own], Retries::default())).expect("it receives");
//!     let mut engine = Engine::new();
//!     engine.add(queue_pair).expect("a free number");
//!     engine
//! });
//! let mut memories = [Buffer([7; 4096]), Buffer([0; 4096])];
//!
//! let all = [Sge { addr: 0, len: 4096, key: 0 }];
//! engines[1].post_receive(qpns[1], 21, &all).expect("a queue pair")?;
//! let (operation, data) = (Operation::Send(SendEnd::Immediate(5)), Data::Memory(&all));
//! let request = SendRequest { id: 20, operation, data, signaled: true, solicited: false, fence: false };
//! engines[0].post_send(qpns[0], &request).expect("a queue pair")?;
//!
//! let (now_ns, mut datagram) = (0, [0; 1024 + HEADERS_MAX_BYTES]);
//! for own in [0, 1] {
//!     while let Some(sent) = engines[own].transmit(now_ns, &mut memories[own], &mut datagram, 0) {
//!         let arrival = Arrival { route: sent.route, icrc: Icrc::IpId(0) };
//!         engines[1 - own].receive(now_ns, arrival, &datagram[..sent.len], &mut memories[1 - own]);
//!     }
//! }
//! let (_, received) = engines[1].poll().expect("a receive");
//! assert_eq!((received.id, received.bytes, memories[1].0), (21, 4096, [7; 4096]));
//! assert_eq!(engines[0].poll().map(|(_, sent)| (sent.id, sent.status)), Some((20, Status::Success)));
//! # Ok::<(), PostError>(())
//! ```
#![forbid(unsafe_code)]

pub mod cm;
mod engine;
mod memory;
mod schedule;
pub mod transport;
pub mod wire;
mod work;

pub use engine::{ByNumber, CreateError, Datagram, Engine, Management, NumberHasher, Received};
pub use memory::{Denied, Memory, Owner, Place, Receive, Right, Sge};
pub use work::{
    Completed, Completion, Data, MESSAGE_BYTES_MAX, Operation, PostError, Remote, SendRequest, Source, Status, To,
};
