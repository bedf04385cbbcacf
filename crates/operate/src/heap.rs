//! The heap of a thread that answers for a run, which never ends: its memory is to be what it is
//! after a few minutes.

/// Less than what glibc's malloc gets from the system at once, and than what it gives back
/// (`M_MMAP_THRESHOLD`, `M_TRIM_THRESHOLD`: 128 KiB).
const ROOM_BYTES: usize = 96 << 10;

/// Writes to room at the end of this thread's heap, and frees it. Answers differ in length, so what
/// one leaves does not always fit the next: without room, a run of an hour takes a page now and
/// then.
pub fn write_heap_room() {
    drop(std::hint::black_box(vec![u8::MAX; ROOM_BYTES]));
}
