//! Quotations in diagnostics, cut to a readable length, with secrets hidden: a user may have
//! written a secret in place of its file's name.

use std::borrow::Cow;

/// Longer words have their middle cut out. No valid name of a plan is as long, and few paths are.
const WORD_CHARS_MAX: usize = 160;

/// Longer texts lose their end. The longest table of terms is far shorter.
const TEXT_BYTES_MAX: usize = 8 << 10;

/// Prefixes of secrets by their formats: NVMe's keys for DH-HMAC-CHAP.
const SECRETS: [&str; 1] = ["DHHC-1:"];

/// The least length of a secret; shorter text is an explanation of the format.
const SECRET_BYTES_MIN: usize = 20;

/// Returns `text` as it is if it is readable; otherwise shortens its longest words to both ends,
/// and cuts its end. Hides secrets.
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

/// Shortens a word to both ends, with the number of bytes left out between them.
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

/// Replaces each character of a secret, after its prefix, by an asterisk.
pub(crate) fn masked(text: &str) -> Cow<'_, str> {
    if !SECRETS.iter().any(|head| text.contains(head)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, head)) = SECRETS.iter().filter_map(|head| Some((rest.find(head)?, *head))).min() {
        let (before, secret) = rest.split_at(at + head.len());
        shown += before;
        let is_secret = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=:-_.".contains(byte);
        let len = secret.bytes().take_while(is_secret).count();
        shown += &if len < SECRET_BYTES_MIN { secret[..len].to_owned() } else { "*".repeat(len) };
        rest = &secret[len..];
    }
    Cow::Owned(shown + rest)
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

    #[test]
    fn secrets_are_hidden_and_nothing_moves() {
        let text = "a = \"DHHC-1:01:AQgPFh+/kzQ5QE9OVVx==:\" # ä DHHC-1:, DHHC-1:NN:BASE64:";
        let shown = masked(text);
        assert_eq!(shown, "a = \"DHHC-1:*************************\" # ä DHHC-1:, DHHC-1:NN:BASE64:");
        assert_eq!(shown.len(), text.len());
        assert_eq!(masked("DHHC-2:01:x"), "DHHC-2:01:x");
    }
}
