//! Features, for Set Features and Get Features.

/// Arbitration.
pub const ARBITRATION: u8 = 0x01;
/// Power Management.
pub const POWER_MANAGEMENT: u8 = 0x02;
/// Power Management: the number of the power state. Every controller has state 0.
pub const POWER_STATE: u32 = 0x1F;
/// Temperature Threshold.
pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
/// Error Recovery.
pub const ERROR_RECOVERY: u8 = 0x05;
/// Error Recovery: reads of deallocated blocks fail (DULBE).
pub const DEALLOCATED_FAIL: u32 = 1 << 16;
/// Volatile Write Cache.
pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
/// Number of Queues.
pub const NUMBER_OF_QUEUES: u8 = 0x07;
/// Write Atomicity Normal.
pub const WRITE_ATOMICITY: u8 = 0x0A;
/// Asynchronous Event Configuration.
pub const ASYNC_EVENTS: u8 = 0x0B;
/// Keep Alive Timer.
pub const KEEP_ALIVE: u8 = 0x0F;

/// The value of Number of Queues: the queues that a host asks for, or is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueCount {
    /// Submission queues, less one.
    pub submission_less_one: u16,
    /// Completion queues, less one.
    pub completion_less_one: u16,
}

impl QueueCount {
    /// Reads dword 11 of the command, or dword 0 of the response.
    pub fn from_dword(dword: u32) -> QueueCount {
        QueueCount { submission_less_one: dword as u16, completion_less_one: (dword >> 16) as u16 }
    }

    /// Returns the value as a dword.
    pub fn to_dword(self) -> u32 {
        u32::from(self.completion_less_one) << 16 | u32::from(self.submission_less_one)
    }
}
