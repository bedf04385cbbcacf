//! The remains of runs in a process: memory, mappings, descriptors.
//!
//! A table that grows now and then grows in one stretch of runs and not in another; a leak, were it
//! one byte a run, grows in all of them. So of several stretches the one that grew least counts.
//! Resident memory is not compared: the allocator keeps free memory, in as many arenas as there
//! were threads, and takes some hundred runs to have seen them all.

use std::alloc::System;
use std::fs;

use serde::{Deserialize, Serialize};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Plans that are judged together.
pub(crate) const STRETCH_PLANS: usize = 100;
/// With fewer stretches, all may have met a table that grows.
const STRETCHES_MIN: usize = 3;

/// The figures of a process between two runs.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Left {
    heap_bytes: u64,
    mapped_pages: u64,
    descriptors: u64,
}

impl Left {
    pub(crate) fn now() -> Left {
        let heap = ALLOCATOR.stats();
        let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
        Left {
            heap_bytes: heap.bytes_allocated.wrapping_sub(heap.bytes_deallocated) as u64,
            mapped_pages: statm.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0),
            descriptors: fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
        }
    }
}

/// The growth in every stretch of runs, if it is worth a mention. The first stretch makes the
/// things that are made once.
pub(crate) fn leak(after_each: &[Left]) -> Option<String> {
    let growths = growths(after_each);
    if growths.len() < STRETCHES_MIN {
        return None;
    }
    // A multicast group's 40 bytes stay with the process, and a stretch may be the first with some
    // group. The allocator maps an arena now and then.
    type Figure = fn(&Left) -> u64;
    let figures: [(&str, u64, Figure); 3] = [
        ("bytes of heap", STRETCH_PLANS as u64, |left| left.heap_bytes),
        ("mapped pages", STRETCH_PLANS as u64 / 10, |left| left.mapped_pages),
        ("descriptors", 1, |left| left.descriptors),
    ];
    let grown: Vec<String> = figures
        .into_iter()
        .map(|(name, bound, figure)| (name, bound, growths.iter().map(figure).min().unwrap_or(0)))
        .filter(|(_, bound, least)| least >= bound)
        .map(|(name, _, least)| format!("{least} {name}"))
        .collect();
    (!grown.is_empty()).then(|| format!("every {STRETCH_PLANS} plans leave at least {} behind", grown.join(", ")))
}

/// How the heap grew from stretch to stretch, in bytes.
pub(crate) fn heap_growths(after_each: &[Left]) -> Vec<u64> {
    growths(after_each).iter().map(|growth| growth.heap_bytes).collect()
}

/// The growth of each stretch over the one before it.
fn growths(after_each: &[Left]) -> Vec<Left> {
    let ends: Vec<&Left> = after_each.chunks_exact(STRETCH_PLANS).filter_map(<[Left]>::last).collect();
    ends.windows(2)
        .map(|pair| Left {
            heap_bytes: pair[1].heap_bytes.saturating_sub(pair[0].heap_bytes),
            mapped_pages: pair[1].mapped_pages.saturating_sub(pair[0].mapped_pages),
            descriptors: pair[1].descriptors.saturating_sub(pair[0].descriptors),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_each(heap_bytes: impl Fn(u64) -> u64) -> Vec<Left> {
        (1..=500).map(|run| Left { heap_bytes: heap_bytes(run), mapped_pages: 1000, descriptors: 7 }).collect()
    }

    #[test]
    fn a_byte_a_run_is_a_leak_and_a_table_that_doubles_is_none() {
        assert_eq!(
            leak(&after_each(|run| run)),
            Some("every 100 plans leave at least 100 bytes of heap behind".into())
        );
        assert_eq!(leak(&after_each(|run| 32 * run.next_power_of_two())), None);
        assert_eq!(leak(&after_each(|_| 1_000_000)), None);
        assert_eq!(leak(&after_each(|run| run)[..300]), None, "too few to tell");
    }

    #[test]
    fn a_descriptor_a_stretch_is_a_leak() {
        let mut left = after_each(|_| 1_000_000);
        left.iter_mut().enumerate().for_each(|(run, left)| left.descriptors += run as u64 / 100);
        assert_eq!(leak(&left), Some("every 100 plans leave at least 1 descriptors behind".into()));
    }
}
