//! The public API, one subject a file: on the software RNIC, or on the kernel's rdma_rxe in a guest
//! (`VERBS_TEST_PROVIDER=kernel tests/guest/run --devices 2 --env VERBS_TEST_PROVIDER --
//! target/debug/deps/suite-… --test-threads=1`). Differences of rdma_rxe are noted where they
//! matter; a test without meaning there prints that it is skipped, and why.
#![allow(unreachable_pub, reason = "a test binary exports nothing; `pub` separates its modules")]

mod backpressure;
mod capabilities;
mod combinations;
mod common;
mod completion_queues;
mod connections;
mod datagrams;
mod events;
mod granted_ranges;
mod leaks;
mod lifecycle;
mod lists;
mod migration;
mod multicast;
mod one_sided;
mod oracle;
mod pingpong;
mod rdma_cm;
mod reconnection;
mod refused_lists;
mod registration;
mod sg_lists;
mod shared_receive;
mod signatures;
mod states;
mod thread_domains;
mod windows;
mod works;
