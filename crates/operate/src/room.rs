//! Checks that a process whose address space is limited (RLIMIT_AS) has room for a capture or a
//! trace.
//!
//! Past that limit any allocation aborts the process: observing a run must not end it like that.

use verbline_plan::Machine;

use crate::protocol::Refusal;

/// The memory mapped by the thread that writes to the client: its stack, its arena of the allocator
/// (mapped twice, to align it), and its buffer.
const THREAD_BYTES: u64 = 160 << 20;

/// The memory for an lcore's trace: its events, and those of its current turn.
pub(crate) const TRACE_BYTES: u64 = 4 << 20;

/// Refuses a request for which too little is left; `bytes` is the memory handed out by lcores.
pub(crate) fn is_there_for(bytes: u64) -> Result<(), Refusal> {
    within(Machine::detect().address_space_bytes, bytes.saturating_add(THREAD_BYTES))
}

fn within(left: Option<u64>, needed: u64) -> Result<(), Refusal> {
    match left.filter(|left| *left < needed) {
        None => Ok(()),
        Some(left) => {
            let why = format!("it takes {needed} bytes of address space, and the process may map {left} more");
            Err(Refusal::new("busy", format!("{why}; raise its limit (ulimit -v, LimitAS of a systemd unit)")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_refused_with_both_numbers() {
        assert!(within(None, u64::MAX).is_ok() && within(Some(7), 7).is_ok());
        let refused = within(Some(7), 8).unwrap_err();
        assert!(refused.code == "busy" && refused.message.contains("takes 8 bytes"), "{refused:?}");
        assert!(refused.message.contains("may map 7 more"), "{refused:?}");
    }
}
