//! Prose (documents and comments that stand alone) has at most 100 columns, code at most 120.
//!
//! A table's row and a word longer than a line can't be broken; both are exempt.

use crate::tidy::counts::Offence;

const PROSE_MAX: usize = 100;
const CODE_MAX: usize = 120;

pub(crate) fn wide(path: &str, text: &str) -> Vec<Offence> {
    let is_document = path.ends_with(".md");
    let (mut offences, mut is_fenced) = (Vec::new(), false);
    for (index, line) in text.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!', ' ']));
        let prose = if is_document { Some(line.trim_start()) } else { comment };
        is_fenced ^= prose.is_some_and(|prose| prose.starts_with("```"));
        let is_code = is_fenced || (is_document && line.starts_with("    "));
        let limit = if prose.is_some() && !is_code { PROSE_MAX } else { CODE_MAX };
        let columns = line.chars().count();
        if columns > limit && !prose.is_some_and(can_not_be_broken) {
            offences.push(Offence::new(path, index + 1, format!("{columns} columns, at most {limit}")));
        }
    }
    offences
}

fn can_not_be_broken(prose: &str) -> bool {
    prose.starts_with('|') || prose.split(' ').any(|word| word.chars().count() > PROSE_MAX - 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        wide(path, text).iter().map(|offence| offence.line).collect()
    }

    #[test]
    fn a_wide_line_of_code_or_of_a_comment_fails() {
        let text = format!("{}\n// {}\n{}\n", "a ".repeat(60), "a ".repeat(48), "ä ".repeat(60));
        assert_eq!(lines("a.rs", &text), [0; 0]);
        let text = format!("{} b\n/// {}b\n    // {}b\n", "a ".repeat(60), "a ".repeat(49), "ä ".repeat(49));
        assert_eq!(lines("a.rs", &text), [1, 2, 3]);
    }

    #[test]
    fn a_wide_line_of_prose_fails_in_a_document_and_code_may_be_wider() {
        let (prose, code) = ("a ".repeat(51), "a ".repeat(58));
        let text = format!("{prose}\n```\n{code}\n{code}{code}\n```\n    {code}\n| {code}{code} |\n");
        assert_eq!(lines("a.md", &text), [1, 4]);
        assert_eq!(lines("a.md", &format!("see\n<https://{}>\n", "a".repeat(100))), [0; 0]);
    }
}
