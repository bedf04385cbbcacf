//! Little-endian numbers at offsets of a byte array. An offset past the end reads as 0 and writes
//! nothing: callers check the length first.

/// Reads the `N` bytes at `at`; zeros past the end.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

/// Writes `value` at `at`, up to the end of the array.
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = at.checked_add(value.len()).and_then(|end| bytes.get_mut(at..end)) {
        place.copy_from_slice(value);
    }
}

/// Writes text to a field of `len` bytes, padded with `pad`. Longer text is cut.
pub(crate) fn put_text(bytes: &mut [u8], at: usize, len: usize, text: &str, pad: u8) {
    let Some(field) = at.checked_add(len).and_then(|end| bytes.get_mut(at..end)) else { return };
    field.fill(pad);
    let taken = text.len().min(len);
    field[..taken].copy_from_slice(&text.as_bytes()[..taken]);
}

/// Reads the text of a field of `len` bytes, without trailing zeros and spaces; `None` if it is not
/// ASCII.
pub(crate) fn text_at(bytes: &[u8], at: usize, len: usize) -> Option<&str> {
    let field = bytes.get(at..at.checked_add(len)?)?;
    let end = field.iter().rposition(|byte| *byte != 0 && *byte != b' ').map_or(0, |last| last + 1);
    let text = &field[..end];
    let is_printable = text.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    str::from_utf8(text).ok().filter(|_| is_printable)
}
