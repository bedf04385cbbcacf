//! A source that a document names between backticks exists: at the path in a table's row, or in
//! prose anywhere in the repository. A function followed by its source in parentheses is in that
//! source.

use crate::tidy::counts::Offence;
use crate::tidy::tree::Tree;

/// The folders at which a path in a document may begin.
const TOPS: &[&str] = &["", "crates/", "apps/"];
/// A path that begins with one of these is a path of this repository, whatever its ending.
const FOLDERS: &[&str] = &["apps/", "benches/", "config/", "crates/", "docs/", "examples/", "tests/"];

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
    let is_ours = FOLDERS.iter().any(|folder| span.starts_with(folder));
    let is_named = is_ours || span.ends_with(".rs") || (span.ends_with('/') && span.len() > 1);
    is_path && !span.starts_with("target/") && is_named
}

/// Functions and fields written as `A::f` (`file.rs`) that no such file has.
pub(crate) fn misplaced(path: &str, text: &str, tree: &Tree) -> Vec<Offence> {
    let spans: Vec<_> = text.split('`').collect();
    let mut offences = Vec::new();
    for (index, spans) in spans.windows(3).enumerate().skip(1).step_by(2) {
        let &[named, between, source] = spans else { continue };
        let Some((_, function)) = named.rsplit_once("::") else { continue };
        let is_behind = between.trim() == "(" && between.starts_with(char::is_whitespace);
        let is_said = is_behind && source.ends_with(".rs") && is_source(source);
        let forms = [format!("fn {function}("), format!("fn {function}<"), format!("pub {function}:")];
        let defines = |text: &str| forms.iter().any(|form| text.contains(form));
        let is_it = |(at, text): (&str, &str)| (at == source || at.ends_with(&format!("/{source}"))) && defines(text);
        if is_said && !tree.sources().any(is_it) {
            let line = before_of(text, index);
            offences.push(Offence::new(path, line, format!("there is no `{named}` in `{source}`")));
        }
    }
    offences
}

/// The line of a text at which the span number `index` begins, counted by backticks.
fn before_of(text: &str, index: usize) -> usize {
    text.split('`').take(index).map(|span| span.matches('\n').count()).sum::<usize>() + 1
}

/// The path that a row of a table means. It may omit the first folder, and the part that it shares
/// with the path before it.
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
    fn a_folder_that_is_gone_fails_without_a_slash_at_its_end() {
        assert_eq!(whats("`apps/b` and `crates/a/src`, `b/c`, `GET crates/x`"), [""; 0]);
        assert_eq!(whats("`tests/tidy` keeps this"), ["there is no `tests/tidy`"]);
    }

    #[test]
    fn a_function_that_is_in_another_source_fails() {
        let tree = Tree::of([("crates/a/src/run.rs", "fn run<T>() {}"), ("crates/a/src/go.rs", "pub fn go(self) {}")]);
        let whats = |text: &str| {
            misplaced("A.md", text, &tree).into_iter().map(|offence| (offence.line, offence.what)).collect::<Vec<_>>()
        };
        assert_eq!(whats("`A::run` (`src/run.rs`) calls\n`A::go`\n(`go.rs`), not `go.rs`"), []);
        let gone = (2, "there is no `A::go` in `src/run.rs`".to_owned());
        assert_eq!(whats("`A::run` (`run.rs`),\nand `A::go`\n(`src/run.rs`)"), [gone]);
    }

    #[test]
    fn what_has_moved_fails_though_another_has_its_name() {
        assert_eq!(whats("| x | `a/src/ports/`: `rx.rs` |"), ["there is no `rx.rs`"]);
        assert_eq!(whats("see `ports/rx.rs` or `crates/a/src/rings/`").len(), 2);
    }
}
