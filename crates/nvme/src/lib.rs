//! NVMe over Fabrics with the RDMA transport, as bytes: the capsules and pages that a host and a
//! controller exchange, read and written.
//!
//! Guarantees: no function does I/O or panics, whatever bytes it is given, and no function on the
//! path of a command allocates. Reading gives a value, or a [`FieldError`] that names the field,
//! its offset and its value, and carries the status by which a controller answers. Reading a
//! written value gives the same value.
//!
//! Names and numbers are those of NVM Express Base 2.0, NVM Command Set 1.0, NVMe over Fabrics 1.1
//! and NVMe over RDMA 1.0. All numbers on the wire are little-endian.
//!
//! ```
//! use verbline_nvme::{COMMAND_BYTES, Command, Sgl, io::ReadWrite, opcode};
//!
//! let range = ReadWrite { slba: 8, blocks: 2 };
//! let sgl = Sgl::Keyed { addr: 0x7000, len: 1024, key: 7, invalidate: false };
//! let command = Command { nsid: 1, ..Command::new(opcode::io::READ, 3, sgl).with(range.dwords()) };
//! let bytes: [u8; COMMAND_BYTES] = command.to_bytes();
//! assert_eq!(Command::read(&bytes)?, command);
//! assert_eq!(ReadWrite::of(&command), range);
//! # Ok::<(), verbline_nvme::FieldError>(())
//! ```
#![forbid(unsafe_code)]

pub mod auth;
mod bytes;
pub mod cm;
mod command;
pub mod connect;
pub mod discovery;
mod error;
pub mod feature;
pub mod identify;
pub mod io;
pub mod log;
pub mod namespace;
mod nqn;
pub mod opcode;
pub mod property;
pub mod protection;
mod response;
pub mod secret;
mod sgl;
mod status;

pub use command::{COMMAND_BYTES, Command};
pub use error::FieldError;
pub use nqn::{DISCOVERY_NQN, NQN_BYTES, NQN_FIELD_BYTES, Nqn, NqnError};
pub use response::{RESPONSE_BYTES, Response};
pub use sgl::Sgl;
pub use status::Status;
