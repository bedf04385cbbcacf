//! The queues' state: what was posted, what may be posted, what waits. Who carries it out is in
//! `data_path`.

pub(crate) mod inbound_filter;
pub(crate) mod outcome;
pub(crate) mod pending;
pub(crate) mod rq;
pub(crate) mod sq;
pub(crate) mod timer;
pub(crate) mod wqe;
pub(crate) mod wr;
