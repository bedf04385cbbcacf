//! A source that a document names between backticks exists: where the row of a table leads to, or
//! in prose somewhere in the repository.

use crate::tidy::counts::Offence;
use crate::tidy::tree::Tree;

/// Where a path in a document may begin.
const TOPS: &[&str] = &["", "crates/", "apps/"];

pub(crate) fn missing(path: &str, text: &str, tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut before = None;
        for named in line.split('`').skip(1).step_by(2).filter(|span| is_source(span)) {
            let is_there = if line.starts_with('|') {
                let found = in_row(named, before.as_deref(), tree);
                let is_there = found.is_some();
                before = found.or(before);
                is_there
            } else {
                anywhere(named, tree)
            };
            if !is_there {
                offences.push(Offence::new(path, index + 1, format!("there is no `{named}`")));
            }
        }
    }
    offences
}

fn is_source(span: &str) -> bool {
    let is_path = span.chars().all(|char| char.is_ascii_alphanumeric() || "/._-".contains(char));
    is_path && !span.starts_with("target/") && (span.ends_with(".rs") || (span.ends_with('/') && span.len() > 1))
}

/// The path that a row of a table means: it may leave out the first folder, and what it has in
/// common with the one before it.
fn in_row(named: &str, before: Option<&str>, tree: &Tree) -> Option<String> {
    let named = named.trim_start_matches("../");
    let above = before.into_iter().flat_map(|path| path.rmatch_indices('/').map(|(at, _)| &path[..=at]));
    let mut candidates = TOPS.iter().copied().chain(above).map(|start| format!("{start}{named}"));
    candidates.find(|candidate| tree.has(candidate.trim_end_matches('/')))
}

/// Whether there is a path that ends like this.
fn anywhere(named: &str, tree: &Tree) -> bool {
    let end = named.trim_start_matches("../").trim_end_matches('/');
    let is_it = |path: &str| path.strip_suffix(end).is_some_and(|start| start.is_empty() || start.ends_with('/'));
    tree.paths().any(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(text: &str) -> Vec<String> {
        let sources = ["crates/a/src/ports/tx.rs", "crates/a/src/ports/many/rx.rs", "apps/b/src/lib.rs"];
        let tree = Tree::of(sources.map(|source| (source, "")));
        missing("A.md", text, &tree).into_iter().map(|offence| offence.what).collect()
    }

    #[test]
    fn what_exists_where_the_row_leads_passes() {
        let text = "| x | `a/src/ports/`: `tx.rs`, `many/rx.rs`; `b/src/lib.rs`: `run`, `A::b` |\n\
                    | y | `a/src/ports/many/rx.rs`, `ports/tx.rs`, `../apps/b/src/` |\n\
                    in prose `rx.rs`, `ports/tx.rs`, `many/`, `true`, `/`, `a *.rs`";
        assert_eq!(whats(text), [""; 0]);
    }

    #[test]
    fn what_has_moved_fails_though_another_has_its_name() {
        assert_eq!(whats("| x | `a/src/ports/`: `rx.rs` |"), ["there is no `rx.rs`"]);
        assert_eq!(whats("see `ports/rx.rs` or `crates/a/src/rings/`").len(), 2);
    }
}
