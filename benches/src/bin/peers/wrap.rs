//! Wraps long lines for a terminal: prose at its blanks, command lines so that they can still be
//! pasted.

/// The width of standard output: that of the terminal, else `COLUMNS`, else 80.
pub(crate) fn columns() -> usize {
    let terminal = comfy_table::Table::new().width().map(usize::from);
    let told = || std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    terminal.or_else(told).unwrap_or(80)
}

/// Prose, in lines of up to this many columns; a longer word stays whole.
pub(crate) fn words(text: &str, first: &str, others: &str, columns: usize) -> String {
    cut(text, first, others, "", columns)
}

/// A command line, with a backslash at each break.
pub(crate) fn command(text: &str, first: &str, columns: usize) -> String {
    let others = " ".repeat(first.chars().count() + 2);
    cut(text, first, &others, " \\", columns)
}

fn cut(text: &str, first: &str, others: &str, goes_on: &str, columns: usize) -> String {
    let len = |text: &str| text.chars().count();
    let mut done = String::new();
    let mut line = first.to_owned();
    let mut is_new = true;
    for word in text.split_whitespace() {
        if !is_new && len(&line) + 1 + len(word) + len(goes_on) > columns {
            done.push_str(&line);
            done.push_str(goes_on);
            done.push('\n');
            line = others.to_owned();
            is_new = true;
        }
        if !is_new {
            line.push(' ');
        }
        line.push_str(word);
        is_new = false;
    }
    done + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_cut_at_its_blanks() {
        assert_eq!(words("one two three", "- ", "  ", 9), "- one two\n  three\n");
        assert_eq!(words("word", "", "", 2), "word\n");
    }

    #[test]
    fn a_command_can_be_pasted() {
        assert_eq!(command("run --all --now", "$ ", 13), "$ run --all \\\n    --now\n");
    }
}
