//! A link from a document into this repository leads to a file or folder that exists, and to a
//! heading that it has.

use crate::tidy::counts::Offence;
use crate::tidy::tree::Tree;

pub(crate) fn dead(path: &str, text: &str, tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (line, target) in targets(text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
        let file = if file.is_empty() { path.to_owned() } else { from(path, file) };
        let heading = || tree.text(&file).is_some_and(|text| headings(text).iter().any(|slug| slug == anchor));
        if !tree.has(&file) {
            offences.push(Offence::new(path, line, format!("({target}): there is no `{file}`")));
        } else if !anchor.is_empty() && !heading() {
            offences.push(Offence::new(path, line, format!("({target}): `{file}` has no heading `{anchor}`")));
        }
    }
    offences
}

/// The lines outside code blocks, without the text between backticks.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        let words: String = line.split('`').step_by(2).collect();
        (!is_fenced && !is_fence && !line.starts_with("    ")).then_some((index + 1, words))
    })
}

/// The targets of `[text](target)`, with their lines.
fn targets(text: &str) -> Vec<(usize, String)> {
    let of_line = |(line, prose): (usize, String)| {
        let ends: Vec<_> = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).collect();
        ends.into_iter().map(|(target, _)| (line, target.to_owned())).collect::<Vec<_>>()
    };
    prose(text).flat_map(of_line).collect()
}

/// GitHub's anchor of each heading, and the anchors that a document sets itself.
fn headings(text: &str) -> Vec<String> {
    let is_heading = |line: &&str| line.starts_with('#') && line.trim_start_matches('#').starts_with(' ');
    let kept = |char: &char| char.is_alphanumeric() || " -_".contains(*char);
    let slug = |line: &str| line.trim_matches(['#', ' ']).to_lowercase().chars().filter(kept).collect::<String>();
    let slugs = text.lines().filter(is_heading).map(|line| slug(line).replace(' ', "-"));
    let set = text.split("<a id=\"").skip(1).filter_map(|rest| rest.split_once('"'));
    slugs.chain(set.map(|(name, _)| name.to_owned())).collect()
}

/// The path from the root of a `file` named in the document at `path`.
fn from(path: &str, file: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in file.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(text: &str) -> Vec<String> {
        let why = "# Why\n<a id=\"pool\"></a>\n## `rate-64B`, and 1,024 queue pairs\n";
        let tree = Tree::of([("docs/a.md", text), ("docs/deep/why.md", why), ("README.md", "")]);
        dead("docs/a.md", text, &tree).into_iter().map(|offence| offence.what).collect()
    }

    #[test]
    fn a_link_to_nothing_fails() {
        let text = "# A\nsee [b](b.md) and [the root](../README.md), [none](#b)";
        let [file, anchor] = &whats(text)[..] else { panic!("{:?}", whats(text)) };
        assert_eq!(file, "(b.md): there is no `docs/b.md`");
        assert_eq!(anchor, "(#b): `docs/a.md` has no heading `b`");
        assert_eq!(whats("[gone](deep/why.md#gone)").len(), 1);
    }

    #[test]
    fn a_link_to_a_heading_a_folder_or_another_site_passes() {
        let text = "# A b\n[a](#a-b) [c](deep) [pool](deep/why.md#pool)\n\
                    [b](deep/why.md#rate-64b-and-1024-queue-pairs)\n\
                    [d](https://docs.rs/x#y)\n\
                    `[e](e.md)`\n```\n[f](f.md)\n```\n    [g](g.md)\n";
        assert_eq!(whats(text), [""; 0]);
    }
}
