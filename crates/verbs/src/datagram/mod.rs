//! UD: paths of datagrams, and the header before a received one.

pub(crate) mod ah;
pub(crate) mod grh;

pub use crate::qp::attr::DEFAULT_QKEY;
pub use crate::wr::post::DestinationId;
pub use ah::{AddressHandle, AhSpec, MULTICAST_QPN};
pub use grh::{GRH_BYTES, Grh, ReplyError};
