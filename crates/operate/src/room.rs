//! Checks that a process whose address space or data is limited (RLIMIT_AS, RLIMIT_DATA) has room
//! for a capture or a trace.
//!
//! Past those limits any allocation aborts the process: observing a run must not end it like that.

use verbline_plan::Machine;

use crate::protocol::Refusal;

/// The memory mapped by the thread that writes to the client: its stack, and its numbers of packets
/// by queue pair.
const THREAD_BYTES: u64 = 8 << 20;

/// The thread's own arena of the allocator, mapped twice to align it: in a process whose mappings
/// were not limited yet as it started.
const ARENA_BYTES: u64 = 128 << 20;

/// The memory for an lcore's trace: its events, and those of its current turn.
pub(crate) const TRACE_BYTES: u64 = 4 << 20;

/// Refuses a request for which too little is left; `bytes` is the memory handed out by lcores, and
/// waiting to be written.
pub(crate) fn is_there_for(bytes: u64) -> Result<(), Refusal> {
    let machine = Machine::detect();
    let arena_bytes = if verbline_mem::arenas_are_shared() { 0 } else { ARENA_BYTES };
    let needed = bytes.saturating_add(THREAD_BYTES + arena_bytes);
    within(&ADDRESS_SPACE, machine.address_space_bytes, needed)?;
    within(&DATA, machine.data_bytes, needed)
}

/// A limit of this process.
struct Limited {
    of: &'static str,
    remedy: &'static str,
}

const ADDRESS_SPACE: Limited = Limited { of: "address space", remedy: "ulimit -v, LimitAS of a systemd unit" };
const DATA: Limited = Limited { of: "data", remedy: "ulimit -d, LimitDATA of a systemd unit" };

fn within(limited: &Limited, left: Option<u64>, needed: u64) -> Result<(), Refusal> {
    match left.filter(|left| *left < needed) {
        None => Ok(()),
        Some(left) => {
            let why = format!("it takes {needed} bytes of {}, and the process may map {left} more", limited.of);
            Err(Refusal::new("busy", format!("{why}; raise its limit ({})", limited.remedy)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_refused_with_both_numbers() {
        for (limited, of, key) in [(ADDRESS_SPACE, "address space", "ulimit -v"), (DATA, "data", "ulimit -d")] {
            assert!(within(&limited, None, u64::MAX).is_ok() && within(&limited, Some(7), 7).is_ok());
            let refused = within(&limited, Some(7), 8).unwrap_err();
            assert!(
                refused.code == "busy" && refused.message.contains(&format!("takes 8 bytes of {of}")),
                "{refused:?}"
            );
            assert!(refused.message.contains("may map 7 more") && refused.message.contains(key), "{refused:?}");
        }
    }
}
