//! A SAFETY comment names the invariant that makes the block sound, and so has words beyond
//! "the caller keeps it" or "as above".

use crate::tidy::counts::Offence;

/// Words that name no invariant.
const FILLER: &[&str] = &[
    "a",
    "above",
    "all",
    "always",
    "and",
    "are",
    "as",
    "at",
    "below",
    "both",
    "by",
    "caller",
    "caller's",
    "contract",
    "each",
    "everywhere",
    "for",
    "function",
    "function's",
    "here",
    "in",
    "is",
    "it",
    "its",
    "keeps",
    "method",
    "method's",
    "of",
    "on",
    "one",
    "our",
    "promise",
    "promised",
    "promises",
    "said",
    "same",
    "says",
    "see",
    "that",
    "the",
    "them",
    "there",
    "this",
    "to",
    "up",
    "verb's",
    "with",
    "word",
];

/// The least number of other words in a comment: the thing and what holds of it.
const WORDS_MIN: usize = 2;

pub(crate) fn empty(path: &str, text: &str) -> Vec<Offence> {
    let mut lines = text.lines().enumerate().peekable();
    let mut offences = Vec::new();
    while let Some((index, line)) = lines.next() {
        let Some((before, said)) = line.split_once("SAFETY:") else { continue };
        if before.trim().is_empty() || !before.trim().chars().all(|char| "/*!".contains(char)) {
            continue;
        }
        let mut comment = said.to_owned();
        while let Some((_, more)) = lines.next_if(|(_, line)| line.trim_start().starts_with("//")) {
            comment = comment + " " + more.trim_start().trim_start_matches('/');
        }
        if says_nothing(&comment) {
            let what = format!("`SAFETY:{said}` names no invariant: say what holds, and who keeps it");
            offences.push(Offence::new(path, index + 1, what));
        }
    }
    offences
}

fn says_nothing(comment: &str) -> bool {
    let words = comment.split(|char: char| !(char.is_alphanumeric() || "_'".contains(char)));
    let words = words.filter(|word| !word.is_empty() && !FILLER.contains(&word.to_lowercase().as_str()));
    words.count() < WORDS_MIN
}

#[test]
fn a_comment_that_names_no_invariant_fails() {
    for nothing in ["the caller's.", "as above.", "by the verb's contract.", "the caller's word, for both.", "live."] {
        let text = format!("fn f() {{\n    // SAFETY: {nothing}\n    unsafe {{}}\n}}\n");
        assert_eq!(empty("a.rs", &text).len(), 1, "{nothing}");
    }
}

#[test]
fn a_comment_that_names_one_passes_in_one_line_or_in_two() {
    let text = "// SAFETY: the queue pair is live; its `QueuePair` owns it.\nunsafe {}\n\
                // SAFETY: as above;\n// the buffer outlives the call.\nunsafe {}\n\
                let text = \"SAFETY: the caller's\";\n";
    assert_eq!(empty("a.rs", text), []);
}
