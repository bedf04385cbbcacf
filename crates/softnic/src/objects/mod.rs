//! The verbs' objects: how each is made, changed, asked and destroyed. Nothing here is on the data path but what an object
//! tells of itself, and the two tables that the data path reads: queue pairs by number (`fabric`), memory by key
//! (`key_table`).

pub(crate) mod ah;
pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod fabric;
pub(crate) mod key_table;
pub(crate) mod mcast;
pub(crate) mod modify;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod pd;
pub(crate) mod qp;
pub mod qp_table;
pub(crate) mod srq;
pub(crate) mod thread_domain;
