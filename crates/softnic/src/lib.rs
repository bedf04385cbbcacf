//! The software RNIC: a verbs provider behind `ibv_context.ops`.
//!
//! Devices `soft0` and `soft1` always exist, without hardware, root or a kernel module. A context opened here has the
//! same table of operations that libibverbs dispatches through, so `ibv_post_send`, `ibv_post_recv`, `ibv_poll_cq`,
//! `ibv_req_notify_cq`, `ibv_post_srq_recv` and the memory-window calls of rdma-sys run on it unchanged. The control
//! verbs are in [`provider`], with libibverbs' C signatures: libibverbs' own would follow private pointers that this
//! context lacks.
//!
//! # What it guarantees
//! - Every access to memory is checked as hardware checks it: key, protection domain, bounds, rights. After
//!   `ibv_dereg_mr` returns nothing touches the memory any more.
//! - States, transitions, flushing, notification and errors follow the man pages; what a transition needs is in
//!   [`qp_table`], which any caller may ask.
//! - All contexts of the process are on one fabric: any queue pair reaches any other, of either device.
//!
//! # Who does the work
//! The calling thread: `ibv_post_send` delivers before it returns, `ibv_poll_cq` places small messages. There is no
//! engine thread. A send that has to wait for a receive is carried out by the receiver's `ibv_post_recv`. One timer
//! thread is started with the first finite time-out that is ever waited for.
//!
//! # Threads
//! As libibverbs with a thread domain for each queue, not as libibverbs without: one thread at a time posts to a send
//! queue, one to a receive queue, one polls, arms or resizes a completion queue. Different queues, also the two of one
//! queue pair, may be on different threads at the same time. `ibv_post_srq_recv`, channels and all control verbs may be
//! called by any thread; an object is destroyed while no other thread uses it.
//!
//! # Layers
//! `protocol` is what threads do to each other (model-checked); `qp_table`, `key_table`, `completion` and `execute` are
//! the engine, which knows no link; `fabric` is the in-process link: it finds a peer by its number. A link between
//! processes would come beside `fabric`.

// A panic behind a verb would leave an extern "C" function, which aborts: each that can't be has its reason beside it.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::unreachable))]

#[cfg(loom)]
#[doc(hidden)]
pub mod protocol;
/// How threads meet inside is nobody's to call: what it needs of its callers is kept by the rest of this crate.
///
/// ```compile_fail,E0603
/// let (ring, consumer) = verbline_softnic::protocol::ring::CqRing::new(8);
/// ```
#[cfg(not(loom))]
mod protocol;

#[cfg(not(loom))]
mod acknowledged;
#[cfg(not(loom))]
mod ah;
#[cfg(not(loom))]
mod async_event;
#[cfg(not(loom))]
mod bulk;
#[cfg(not(loom))]
mod channel;
#[cfg(not(loom))]
mod completion;
#[cfg(not(loom))]
mod context;
#[cfg(not(loom))]
mod copy;
#[cfg(not(loom))]
mod cq;
#[cfg(not(loom))]
mod datagram;
#[cfg(not(loom))]
mod device;
#[cfg(not(loom))]
mod errno;
#[cfg(not(loom))]
mod errors;
#[cfg(not(loom))]
mod event_queue;
#[cfg(not(loom))]
mod execute;
#[cfg(not(loom))]
mod fabric;
#[cfg(not(loom))]
pub mod fault;
#[cfg(not(loom))]
mod flush;
#[cfg(not(loom))]
mod key_table;
#[cfg(not(loom))]
mod mcast;
#[cfg(not(loom))]
mod message;
#[cfg(not(loom))]
mod modify;
#[cfg(not(loom))]
mod mr;
#[cfg(not(loom))]
mod mw;
#[cfg(not(loom))]
mod one_sided;
#[cfg(not(loom))]
mod pd;
#[cfg(not(loom))]
mod poll;
#[cfg(not(loom))]
pub mod provider;
#[cfg(not(loom))]
mod psn;
#[cfg(not(loom))]
mod qp;
pub mod qp_table;
#[cfg(not(loom))]
mod rq;
#[cfg(not(loom))]
mod scatter;
#[cfg(not(loom))]
mod small;
#[cfg(not(loom))]
mod sq;
#[cfg(not(loom))]
mod srq;
#[cfg(not(loom))]
mod stall;
#[cfg(not(loom))]
mod thread_domain;
#[cfg(not(loom))]
mod timer;
#[cfg(not(loom))]
mod transfer;
#[cfg(not(loom))]
pub mod tuning;
