//! Cuts what a diagnostic quotes from a file to a length that a person reads.

use crate::masked::masked;

/// Longer words have their middle cut out: no name that a plan may have is as long, and few paths
/// are.
const WORD_CHARS_MAX: usize = 160;

/// Longer texts lose their end: far more than any table of terms.
const TEXT_BYTES_MAX: usize = 8 << 10;

/// `text` as it is, if a person can read it; else what is at both ends of its longest words, and
/// not all of it. No secret is shown.
pub(crate) fn excerpt(text: String) -> String {
    let mut text = masked(&text).into_owned();
    if text.len() <= WORD_CHARS_MAX {
        return text;
    }
    let is_long = |word: &str| word.len() > WORD_CHARS_MAX;
    if text.split(char::is_whitespace).any(is_long) {
        text = text.split_inclusive(char::is_whitespace).map(shorten).collect();
    }
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text += " …";
    }
    text
}

/// The ends of a word, with how much is left out between them.
fn shorten(word: &str) -> String {
    let end = word.trim_end().len();
    let (bare, space) = word.split_at(end);
    if bare.len() <= WORD_CHARS_MAX {
        return word.to_owned();
    }
    let head = bare.floor_char_boundary(WORD_CHARS_MAX / 2);
    let tail = bare.floor_char_boundary(bare.len() - WORD_CHARS_MAX / 4);
    format!("{}…({} bytes)…{}{space}", &bare[..head], tail - head, &bare[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_readable_stays_and_the_rest_is_cut() {
        let readable = "`lcore` must be a string, not an integer ".repeat(20);
        assert_eq!(excerpt(readable.clone()), readable);
        assert_eq!(
            excerpt(format!("no key `{}` here\nas it is", "ä".repeat(500_000))),
            format!("no key `{}…(999882 bytes)…{}` here\nas it is", "ä".repeat(39), "ä".repeat(20))
        );
        let endless = excerpt("word ".repeat(100_000));
        assert!(endless.len() < TEXT_BYTES_MAX + 10 && endless.ends_with('…'));
    }
}
