//! The numbers of a live line.

/// The number in front of `unit` in a run's live line, e.g. 1234 orders in
/// `kv 00:00:12 1,170,123 ticks (50,000/s), 1,234 orders`.
pub(crate) fn number(shown: &str, unit: &str) -> Option<u64> {
    let mut words = shown.split_whitespace().peekable();
    // The last match on the screen: lines above it may have scrolled up.
    let mut found = None;
    while let Some(word) = words.next() {
        let is_unit = words.peek().is_some_and(|next| next.trim_end_matches(',') == unit);
        if is_unit {
            found = word.replace(',', "").parse().ok().or(found);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_the_one_before_its_unit() {
        let shown = "tick-to-trade 00:00:03 [==>   ] 1,170,123 ticks (50,000/s), 1,234 orders, 12 gaps";
        assert_eq!(number(shown, "ticks"), Some(1_170_123));
        assert_eq!(number(shown, "orders"), Some(1_234));
        assert_eq!(number(shown, "gaps"), Some(12));
        assert_eq!(number(shown, "commands"), None);
        assert_eq!(number("some commands, 7 commands\n8 commands", "commands"), Some(8));
        assert_eq!(number("", "ticks"), None);
    }
}
