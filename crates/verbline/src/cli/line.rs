//! The live line as text: it fits the terminal, and each number in it is whole or left out.

use std::time::Duration;

use indicatif::FormattedDuration;

/// The width from which a terminal has room for the bar.
const BAR_FROM_COLUMNS: usize = 60;

/// Columns of the bar itself.
const BAR: usize = 16;

/// The progress of a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    /// The plan's name.
    pub(super) plan: String,
    /// The time since the start.
    pub(super) elapsed: Duration,
    /// The length of the run; `None` if it has no end, and so no part of it is done.
    pub(super) length: Option<Duration>,
    /// The app's words: pieces, with a comma and a space between them.
    pub(super) words: String,
}

impl Line {
    /// The line for a terminal of this width, whose last column stays free: a terminal may begin
    /// the next line there.
    pub(super) fn fit(&self, columns: usize) -> String {
        let width = columns.saturating_sub(1);
        let mut line = fitted(&self.plan, (width / 3).max(8));
        append(&mut line, &FormattedDuration(self.elapsed).to_string(), width);
        if let Some(length) = self.length.filter(|_| columns >= BAR_FROM_COLUMNS) {
            append(&mut line, &bar(self.elapsed, length), width);
        }
        append_words(&mut line, &self.words, width);
        line
    }
}

/// Appends as many whole pieces of `words` as fit; of the first, as many whole words as fit.
fn append_words(line: &mut String, words: &str, width: usize) {
    for (index, piece) in words.split_inclusive(", ").enumerate() {
        let whole = piece.strip_suffix(", ").unwrap_or(piece);
        let before = line.clone();
        if index > 0 {
            line.push(',');
        }
        if !append(line, whole, width) {
            *line = before;
            if index == 0 {
                // Stops at the first word that doesn't fit.
                let _ = whole.split(' ').all(|word| append(line, word, width));
            }
            return;
        }
    }
}

/// Adds `part` behind a space if it fits. Returns whether it did.
fn append(line: &mut String, part: &str, width: usize) -> bool {
    let fits = columns_of(line) + 1 + columns_of(part) <= width;
    if fits {
        line.push(' ');
        line.push_str(part);
    }
    fits
}

fn columns_of(text: &str) -> usize {
    text.chars().count()
}

/// `text` in at most `width` columns.
pub(super) fn fitted(text: &str, width: usize) -> String {
    match columns_of(text) <= width {
        true => text.to_owned(),
        false => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// The done part of the run: `[=====>          ]`.
fn bar(elapsed: Duration, length: Duration) -> String {
    let share = (elapsed.as_secs_f64() / length.as_secs_f64()).min(1.0);
    let done = (share * BAR as f64) as usize;
    let head = if done < BAR { ">" } else { "" };
    format!("[{:BAR$}]", format!("{}{head}", "=".repeat(done)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &str) -> Line {
        let (elapsed, length) = (Duration::from_secs(3), Some(Duration::from_secs(12)));
        Line { plan: "tick-to-trade".into(), elapsed, length, words: words.into() }
    }

    #[test]
    fn a_number_is_whole_or_not_there() {
        let line = line("1,170,123 ticks, p50 1.3µs, 99.5 % of main stolen");
        assert_eq!(line.fit(80), "tick-to-trade 00:00:03 [====>           ] 1,170,123 ticks, p50 1.3µs");
        assert_eq!(line.fit(60), "tick-to-trade 00:00:03 [====>           ] 1,170,123 ticks");
        assert_eq!(line.fit(59), "tick-to-trade 00:00:03 1,170,123 ticks, p50 1.3µs");
        assert_eq!(line.fit(40), "tick-to-trade 00:00:03 1,170,123 ticks");
        assert_eq!(line.fit(38), "tick-to-tra… 00:00:03 1,170,123 ticks");
        assert_eq!(line.fit(32), "tick-to-t… 00:00:03 1,170,123");
        for columns in 0..200 {
            let shown = line.fit(columns);
            assert!(columns_of(&shown) < columns.max(9), "{columns}: {shown}");
            let words = shown.split_whitespace().skip(1).map(|word| word.trim_matches(','));
            let known = |word: &str| {
                "00:00:03 [====> ] 1,170,123 ticks p50 1.3µs 99.5 % of main stolen".split(' ').any(|one| one == word)
            };
            assert!(words.clone().all(known), "{columns}: {shown}");
        }
    }

    #[test]
    fn the_bar_fills_and_a_run_without_an_end_has_none() {
        let at = |secs| bar(Duration::from_secs(secs), Duration::from_secs(16));
        assert_eq!([at(0), at(15)], ["[>               ]", "[===============>]"]);
        assert_eq!([at(16), at(99)], ["[================]", "[================]"]);
        assert_eq!(Line { length: None, ..line("draining") }.fit(80), "tick-to-trade 00:00:03 draining");
    }
}
