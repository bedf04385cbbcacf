//! Text of plans, peers and panics, made harmless to a terminal.

use std::borrow::Cow;

/// `text` with its control characters as escapes (`\u{1b}`). Line ends and tabs stay; with
/// `coloured`, sequences that only set colours stay too.
pub(super) fn visible(text: &str, coloured: bool) -> Cow<'_, str> {
    let is_plain = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(next) = rest.chars().next() {
        let colour = if coloured { colour_len(rest) } else { 0 };
        let len = colour.max(next.len_utf8());
        if colour > 0 || is_plain(next) {
            out.push_str(&rest[..len]);
        } else {
            out.extend(next.escape_unicode());
        }
        rest = &rest[len..];
    }
    Cow::Owned(out)
}

/// A name on one line: all of its control characters are escapes.
pub(super) fn visible_name(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { c.escape_unicode().to_string() } else { c.to_string() }).collect()
}

/// The length of a colour sequence (SGR, e.g. `ESC [ 1 ; 31 m`) at the start of `text`; 0 if there
/// is none.
fn colour_len(text: &str) -> usize {
    let Some(parameters) = text.strip_prefix("\x1b[") else { return 0 };
    let end = parameters.find(|c: char| !c.is_ascii_digit() && c != ';' && c != ':');
    end.filter(|end| parameters[*end..].starts_with('m')).map_or(0, |end| "\x1b[".len() + end + "m".len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_colours_stay_where_they_are_wanted() {
        assert_eq!(visible("plain\n\ttext, µs", false), "plain\n\ttext, µs");
        let red = "\x1b[1;31mFAILED\x1b[0m";
        assert_eq!(visible(red, true), red);
        assert_eq!(visible(red, false), "\\u{1b}[1;31mFAILED\\u{1b}[0m");
        // The title of a window, a cursor that goes up, a bell, a line that overwrites itself, a C1
        // sequence.
        for hostile in ["\x1b]0;owned\x07", "\x1b[2A", "\x07", "good\rbad", "\u{9b}31m", "\x1b[", "\x1b[31", "\x7f"] {
            let shown = visible(hostile, true);
            assert!(!shown.chars().any(char::is_control), "{shown:?}");
        }
    }

    #[test]
    fn a_name_stays_on_its_line() {
        assert_eq!(visible_name("a\nb\x1b[31mc"), "a\\u{a}b\\u{1b}[31mc");
    }
}
