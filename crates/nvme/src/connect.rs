//! The Connect command, which is the first on every queue, and its data.

use crate::bytes::{array, put, u16_at};
use crate::command::Command;
use crate::error::FieldError;
use crate::nqn::Nqn;
use crate::opcode::fabrics;
use crate::response::Response;
use crate::sgl::Sgl;
use crate::status::Status;

/// Length of the command's data, bytes.
pub const DATA_BYTES: usize = 1024;
/// On an admin queue: the host asks for any controller.
pub const CNTLID_ANY: u16 = 0xFFFF;

/// Offsets of fields, for [`ConnectDataError`] and
/// [`Response::invalid_parameter`](crate::Response::invalid_parameter).
pub mod at {
    /// In the command: the queue.
    pub const QID: u16 = 42;
    /// In the command: the size of the queue.
    pub const SQSIZE: u16 = 44;
    /// In the data: the controller.
    pub const CNTLID: u16 = 16;
    /// In the data: the subsystem.
    pub const SUBNQN: u16 = 256;
    /// In the data: the host.
    pub const HOSTNQN: u16 = 512;
}

/// The parameters of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// The queue; 0 is the admin queue.
    pub qid: u16,
    /// Entries of the queue, less one.
    pub sqsize: u16,
    /// Connect attributes.
    pub cattr: u8,
    /// The keep-alive time-out, milliseconds; 0: none. Only the admin queue has one.
    pub kato_ms: u32,
}

impl Connect {
    /// Reads the parameters.
    ///
    /// # Errors
    /// The record format is not 0.
    pub fn of(command: &Command) -> Result<Connect, FieldError> {
        let [dword10, dword11, kato_ms, ..] = command.cdw10;
        if dword10 & 0xFFFF != 0 {
            return Err(FieldError::new("RECFMT", 40, dword10 & 0xFFFF, Status::CONNECT_FORMAT.do_not_retry()));
        }
        Ok(Connect { qid: (dword10 >> 16) as u16, sqsize: dword11 as u16, cattr: (dword11 >> 16) as u8, kato_ms })
    }

    /// Returns the command as to be sent.
    pub fn command(&self, cid: u16, sgl: Sgl) -> Command {
        let dword11 = u32::from(self.sqsize) | u32::from(self.cattr) << 16;
        let dwords = [u32::from(self.qid) << 16, dword11, self.kato_ms, 0, 0, 0];
        Command { nsid: fabrics::CONNECT.into(), ..Command::new(fabrics::OPCODE, cid, sgl).with(dwords) }
    }
}

/// The data of the command: the host, and the controller and subsystem that it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectData {
    /// The host identifier.
    pub host_id: [u8; 16],
    /// The controller; [`CNTLID_ANY`] on an admin queue.
    pub cntlid: u16,
    /// The subsystem.
    pub subsystem: Nqn,
    /// The host.
    pub host: Nqn,
}

/// A field in the data of a Connect is wrong. The response names its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the data of Connect is wrong from byte {at} on")]
pub struct ConnectDataError {
    /// The first byte of the field.
    pub at: u16,
}

impl ConnectDataError {
    /// Returns dword 0 of the response.
    pub fn result(self) -> u64 {
        Response::invalid_parameter(self.at, true)
    }
}

impl ConnectData {
    /// Reads the data.
    ///
    /// # Errors
    /// The data is too short, or a name in it is no NQN.
    pub fn read(data: &[u8]) -> Result<ConnectData, ConnectDataError> {
        let Some(data) = data.first_chunk::<DATA_BYTES>() else { return Err(ConnectDataError { at: 0 }) };
        let name = |at| Nqn::read(data, usize::from(at)).ok_or(ConnectDataError { at });
        Ok(ConnectData {
            host_id: array(data, 0),
            cntlid: u16_at(data, 16),
            subsystem: name(at::SUBNQN)?,
            host: name(at::HOSTNQN)?,
        })
    }

    /// Returns the data as on the wire.
    pub fn to_bytes(&self) -> [u8; DATA_BYTES] {
        let mut bytes = [0; DATA_BYTES];
        put(&mut bytes, 0, &self.host_id);
        put(&mut bytes, 16, &self.cntlid.to_le_bytes());
        self.subsystem.write(&mut bytes, at::SUBNQN.into());
        self.host.write(&mut bytes, at::HOSTNQN.into());
        bytes
    }
}
