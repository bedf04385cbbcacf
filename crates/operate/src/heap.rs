//! The heap of a thread that serves a run without end: its memory should stop growing after a few
//! minutes.

/// Less than glibc's malloc takes from the system, or gives back to it, at once
/// (`M_MMAP_THRESHOLD`, `M_TRIM_THRESHOLD`: 128 KiB).
const ROOM_BYTES: usize = 96 << 10;

/// Touches some room at the end of this thread's heap, and frees it. Answers differ in length, so
/// that the gap of one does not always fit the next: without the room, a run of an hour takes
/// another page now and then.
pub fn write_heap_room() {
    drop(std::hint::black_box(vec![u8::MAX; ROOM_BYTES]));
}
