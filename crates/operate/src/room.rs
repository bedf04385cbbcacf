//! Whether a process whose address space is limited (RLIMIT_AS) has room for a capture or a trace.
//!
//! Past that limit an allocation aborts the process, wherever it happens to be: a look at a run
//! must not end it so.

use verbline_plan::Machine;

use crate::protocol::Refusal;

/// What the thread maps that writes to the client: its stack, the arena that the allocator gives it
/// (which it maps twice, to align it), and what it writes at once.
const THREAD_BYTES: u64 = 160 << 20;

/// What an lcore hands out in a trace: events, and those of its turn.
pub(crate) const TRACE_BYTES: u64 = 4 << 20;

/// Refuses what takes more than is left; `bytes`: for what lcores hand out.
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
