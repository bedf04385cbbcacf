//! A function or field that a document writes as `A::b` exists on the type `A`.

use std::collections::BTreeMap;

use crate::tidy::counts::Offence;
use crate::tidy::tree::Tree;

/// The sources that declare each type or implement something for it.
pub(crate) type Types<'a> = BTreeMap<&'a str, Vec<&'a str>>;

pub(crate) fn types(tree: &Tree) -> Types<'_> {
    let mut types = Types::new();
    for (_, text) in tree.sources() {
        for name in text.lines().filter_map(declared) {
            types.entry(name).or_default().push(text);
        }
    }
    types
}

/// The type that a line declares, or implements something for.
fn declared(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub ")).unwrap_or(line);
    let named = ["struct ", "enum ", "trait "].iter().find_map(|word| line.strip_prefix(word));
    let implemented = || {
        let rest = line.strip_prefix("impl")?;
        let rest = rest.split_once(" for ").map_or(rest, |(_, rest)| rest);
        Some(rest.strip_prefix('<').and_then(|rest| rest.split_once("> ")).map_or(rest, |(_, rest)| rest))
    };
    let rest = named.or_else(implemented)?.trim_start();
    let end = rest.find(|char: char| !is_of_a_name(char)).unwrap_or(rest.len());
    Some(&rest[..end])
}

fn is_of_a_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_'
}

pub(crate) fn missing(path: &str, text: &str, types: &Types<'_>) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for span in line.split('`').skip(1).step_by(2) {
            let Some((name, member)) = span.split_once("::") else { continue };
            let is_member =
                member.starts_with(|char: char| char.is_ascii_lowercase()) && member.chars().all(is_of_a_name);
            let Some(sources) = types.get(name).filter(|_| is_member) else { continue };
            let forms = [format!("fn {member}("), format!("fn {member}<"), format!("pub {member}:")];
            if !sources.iter().any(|source| forms.iter().any(|form| source.contains(form))) {
                offences.push(Offence::new(path, index + 1, format!("`{name}` has no `{member}`")));
            }
        }
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_or_a_field_that_is_gone_fails() {
        let region = "pub struct Region {\n    pub len: u64,\n    key: u32,\n}\nimpl<'a> Deref for Region {}\n";
        let part = "impl<'a> Region {\n    pub fn part<T>(&self) {}\n}\npub fn key() {}\n";
        let other = "struct Other;\nimpl Region for Other {\n    fn key(&self) {}\n}\n";
        let tree = Tree::of([("crates/a/src/a.rs", region), ("crates/a/src/b.rs", other)]);
        let whats = |tree: &Tree, text: &str| {
            missing("A.md", text, &types(tree)).into_iter().map(|offence| offence.what).collect::<Vec<_>>()
        };
        let text = "`Region::len`, `Region::New`, `Gone::key`, `Other::key`\n`Region::key` and `Region::part`";
        assert_eq!(whats(&tree, text), ["`Region` has no `key`", "`Region` has no `part`"]);
        let tree = Tree::of([("crates/a/src/a.rs", region), ("crates/a/src/c.rs", part)]);
        assert_eq!(whats(&tree, "`Region::part`"), [""; 0]);
    }
}
