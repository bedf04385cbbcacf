//! The queues' state: posted, free and waiting work requests. `data_path` carries them out.

pub(crate) mod due;
pub(crate) mod inbound_filter;
pub(crate) mod outcome;
pub(crate) mod pending;
pub(crate) mod rq;
pub(crate) mod sq;
pub(crate) mod timer;
pub(crate) mod wqe;
pub(crate) mod wr;
