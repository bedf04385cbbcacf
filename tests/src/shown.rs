//! Makes output for people fit for a snapshot.

/// The width that all output fits.
const COLUMNS: usize = 80;

/// Insists that no line is wider than a plain terminal.
#[track_caller]
pub fn assert_fits(text: &str) {
    for line in text.lines() {
        let width = line.chars().count();
        assert!(width <= COLUMNS, "{width} columns: {line}\n--- in\n{text}");
    }
}

/// The text with every number as `N` (including its unit and separators) and runs of spaces as one:
/// the part that does not change from run to run.
pub fn normalised(text: &str) -> String {
    unwrapped(text).iter().map(|whole| line(whole)).collect::<Vec<_>>().join("\n")
}

/// Joins the lines of a stage's counters and times: where a list breaks depends on its numbers.
fn unwrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let list = lines.last_mut().filter(|last| ["counters ", "times "].iter().any(|word| last.starts_with(word)));
        match list.filter(|_| line.starts_with(' ')) {
            Some(last) => last.extend([" ", line.trim_start()]),
            None => lines.push(line.to_owned()),
        }
    }
    lines
}

fn line(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(next) = rest.chars().next() {
        // A digit within a word, as in p99, is a name.
        let starts = next.is_ascii_digit() && !out.ends_with(|last: char| last.is_alphanumeric() || last == '.');
        let end = if starts { number_len(rest) } else { next.len_utf8() };
        match &rest[..end] {
            _ if starts => out.push('N'),
            " " if out.ends_with(' ') => {}
            other => out.push_str(other),
        }
        rest = &rest[end..];
    }
    out.trim_end().to_owned()
}

/// The length of the number at the start, with its unit of time.
fn number_len(text: &str) -> usize {
    let digits = |c: char| c.is_ascii_digit();
    let mut end = 0;
    loop {
        end += text[end..].len() - text[end..].trim_start_matches(digits).len();
        let separated = text[end..].strip_prefix([',', '.']).is_some_and(|rest| rest.starts_with(digits));
        if !separated {
            break;
        }
        end += 1;
    }
    let unit = ["ns", "µs", "ms", "s"].into_iter().find(|unit| {
        let rest = text[end..].strip_prefix(unit);
        rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    });
    end + unit.map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_and_names_stay() {
        let text = "latency  p50 1.3µs  p99.9 12.0ms   17 (1.5 %)\n  packets  1,250,000 taken, 239.1.1.1, run 10s.";
        assert_eq!(normalised(text), "latency p50 N p99.9 N N (N %)\n packets N taken, N, run N.");
        assert_eq!(normalised("times  a 1, b within\n       2\nnext 3,\n  4"), "times a N, b within N\nnext N,\n N");
    }
}
