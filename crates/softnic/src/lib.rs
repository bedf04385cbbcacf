//! The software RNIC: a verbs provider behind `ibv_context.ops`.
//!
//! Devices `soft0` and `soft1` always exist, without hardware, root or a kernel module. A context
//! opened here has the same table of operations that libibverbs dispatches through, so
//! `ibv_post_send`, `ibv_post_recv`, `ibv_poll_cq`, `ibv_req_notify_cq`, `ibv_post_srq_recv` and
//! the memory-window calls of rdma-sys run on it unchanged. The control verbs are in [`provider`],
//! with libibverbs' C signatures: libibverbs' own would follow private pointers that this context
//! lacks.
//!
//! As with libibverbs, but for where the control verbs come from:
//!
//! ```
//! use rdma_sys::{ibv_access_flags, ibv_poll_cq, ibv_wc};
//! use verbline_softnic::provider as soft;
//!
//! let mut bytes = [0_u8; 64];
//! // SAFETY: each call is as its manual page demands, and objects are destroyed in the opposite
//! // order of their creation.
//! unsafe {
//!     let mut count = 0;
//!     let list = soft::ibv_get_device_list(&mut count);
//!     let context = soft::ibv_open_device(*list);
//!     soft::ibv_free_device_list(list);
//!     let pd = soft::ibv_alloc_pd(context);
//!     let access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 as _;
//!     let mr = soft::ibv_reg_mr(pd, bytes.as_mut_ptr().cast(), bytes.len(), access);
//!     let cq = soft::ibv_create_cq(context, 16, std::ptr::null_mut(), std::ptr::null_mut(), 0);
//!     assert!(count == 2 && !mr.is_null() && !cq.is_null());
//!
//!     // rdma-sys's own: it calls what the context's table has.
//!     let mut completion: ibv_wc = std::mem::zeroed();
//!     assert_eq!(ibv_poll_cq(cq, 1, &mut completion), 0);
//!
//!     assert_eq!(soft::ibv_destroy_cq(cq), 0);
//!     assert_eq!(soft::ibv_dereg_mr(mr), 0);
//!     assert_eq!(soft::ibv_dealloc_pd(pd), 0);
//!     assert_eq!(soft::ibv_close_device(context), 0);
//! }
//! ```
//!
//! # Guarantees
//! - Every access to memory is checked as in hardware: key, protection domain, bounds, rights.
//!   After `ibv_dereg_mr` returns nothing touches the memory any more.
//! - States, transitions, flushing, notification and errors follow the man pages; any caller may
//!   look up a transition's attributes in [`qp_table`].
//! - All contexts of the process are on one fabric: any queue pair reaches any other, of either
//!   device. A device that was given an address ([`wire`]) reaches queue pairs of other processes
//!   and hosts too.
//!
//! # Who does the work
//! The calling thread: `ibv_post_send` delivers before it returns, `ibv_poll_cq` places small
//! messages. There is no engine thread. The receiver's `ibv_post_recv` carries out a send that
//! waits for a receive. One timer thread starts with the first wait that has a finite time-out;
//! each wire has a thread.
//!
//! # Threads
//! Like libibverbs with a thread domain for each queue, unlike libibverbs without: one thread at a
//! time posts to a send queue, one to a receive queue, one polls, arms or resizes a completion
//! queue. Different queues, also the two of one queue pair, may be on different threads at the same
//! time. Any thread may call `ibv_post_srq_recv`, use channels and call control verbs. An object is
//! destroyed while no other thread uses it.
//!
//! No data path waits for another: inside a guard a thread waits only for the holder of a short
//! lock, which waits for nobody (`verbline_sync::lock_order`, checked in debug builds). One thread
//! at a time carries out waiting work requests; another that wants to leaves them to it. Destroying
//! an object waits only for the transfers that use it.
//!
//! A child of `fork(2)` has none of the other threads, which may have been inside a guard or have
//! held a lock. Like the child of any program with threads (fork(2), NOTES), it calls `execve(2)`
//! or `_exit(2)`, and nothing here. The parent goes on as before.
//!
//! # Layers
//! From the top: [`provider`] turns a program's pointers into references; `control` makes, changes
//! and destroys queue pairs; `data_path` posts, carries out, completes and polls; `objects` are the
//! verbs' objects, with the table by which the data path finds a queue pair (`fabric`, the
//! in-process link); `queues` holds the entries of a queue pair's queues; `key_table` finds memory;
//! `signature` is beside them: keys that stand for others, and check blocks. `verbline-sync` has
//! all interaction between threads (model-checked). [`wire`] stands beside `fabric`: the path to
//! other processes.

// A panic behind a verb would leave an extern "C" function, which aborts: the reason why each
// cannot happen stands beside it.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::unreachable))]

mod control;
mod copy;
pub mod counters;
mod data_path;
mod errno;
mod events;
pub mod fault;
mod key_table;
pub mod mlx5dv;
mod objects;
pub mod provider;
mod queues;
mod signature;
pub mod wire;

pub use copy::tuning;
pub use objects::qp_table;
