//! The data path: posting, carrying out, completing and polling work requests.

pub(crate) mod bulk;
pub(crate) mod completion;
pub(crate) mod datagram;
pub(crate) mod errors;
pub(crate) mod execute;
pub(crate) mod flush;
pub(crate) mod message;
pub(crate) mod one_sided;
pub(crate) mod poll;
pub(crate) mod psn;
pub(crate) mod rq;
pub(crate) mod scatter;
pub(crate) mod small;
pub(crate) mod sq;
pub(crate) mod stall;
pub(crate) mod timer;
pub(crate) mod transfer;
