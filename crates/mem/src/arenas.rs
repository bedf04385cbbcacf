//! Arenas of the allocator in a process whose mappings are limited (RLIMIT_AS, RLIMIT_DATA).
//!
//! glibc gives each thread that allocates an arena of its own, up to eight a CPU, and maps 64 MiB
//! for it (mallopt(3), M_ARENA_MAX). A run has a thread for each lcore and for each port with an
//! address: their arenas would take what is left below the limit, and the next allocation of any
//! thread would abort the process. With one arena a thread maps its stack alone, and the sum of a
//! plan's memory can tell how much that is.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Resource, getrlimit};

static ARE_SHARED: AtomicBool = AtomicBool::new(cfg!(not(all(target_os = "linux", target_env = "gnu"))));

/// If mappings are limited, later threads allocate from arenas that are already there. Does
/// nothing otherwise, and with other allocators. Nothing in this framework allocates on an lcore
/// after the start, so nobody waits for the one arena's lock there.
pub fn share_arenas_if_limited() {
    if [Resource::As, Resource::Data].into_iter().any(|limit| getrlimit(limit).current.is_some()) {
        share_arenas();
        // Relaxed: it publishes no data.
        ARE_SHARED.store(true, Ordering::Relaxed);
    }
}

/// Whether a new thread has no arena of its own: mappings were limited when this process started,
/// or the allocator has no arenas.
pub fn arenas_are_shared() -> bool {
    // Relaxed: as where it is stored.
    ARE_SHARED.load(Ordering::Relaxed)
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn share_arenas() {
    // SAFETY: mallopt(3) takes any two integers, and locks what it changes.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn share_arenas() {}
