//! Work requests: posted to a queue, kept until they complete, and handed back.

pub(crate) mod buffer;
pub(crate) mod connected;
pub(crate) mod kept;
pub(crate) mod local;
pub(crate) mod operation;
pub(crate) mod post;
pub(crate) mod post_verb;
pub(crate) mod recv;
pub(crate) mod request;
pub(crate) mod send;
pub(crate) mod sg_list;
pub(crate) mod slots;
pub(crate) mod wr_list;
pub(crate) mod wr_queue;
