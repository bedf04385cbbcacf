//! The texts of the repository, by their paths from its root.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use verbline_tests::root;

/// Build output, and files that are nobody's text.
const PASSED_OVER: &[&str] = &["target", "corpus"];

#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Files and folders, whatever is in them.
    paths: BTreeSet<String>,
    texts: BTreeMap<String, String>,
}

impl Tree {
    pub(crate) fn of_the_repository() -> Tree {
        let mut tree = Tree::default();
        tree.add_folder(&root(), "");
        assert!(tree.sources().count() > 100, "the sources are not below {}", root().display());
        tree
    }

    #[cfg(test)]
    pub(crate) fn of<const N: usize>(texts: [(&str, &str); N]) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in texts {
            let folders = path.match_indices('/').map(|(at, _)| path[..at].to_owned());
            tree.paths.extend(folders.chain([path.to_owned()]));
            tree.texts.insert(path.to_owned(), text.to_owned());
        }
        tree
    }

    fn add_folder(&mut self, folder: &Path, name: &str) {
        for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let entry = entry.expect("an entry of a folder");
            let file_name = entry.file_name().to_string_lossy().into_owned();
            if file_name.starts_with('.') || PASSED_OVER.contains(&file_name.as_str()) {
                continue;
            }
            let path = if name.is_empty() { file_name } else { format!("{name}/{file_name}") };
            self.paths.insert(path.clone());
            if entry.file_type().expect("a file's type").is_dir() {
                self.add_folder(&entry.path(), &path);
            } else if path.ends_with(".rs") || path.ends_with(".md") {
                let text = fs::read_to_string(entry.path()).unwrap_or_else(|error| panic!("{path}: {error}"));
                self.texts.insert(path, text);
            }
        }
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        path.is_empty() || self.paths.contains(path)
    }

    /// Files and folders.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(String::as_str)
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Sources and documents.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    pub(crate) fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(|(path, _)| path.ends_with(".rs"))
    }

    pub(crate) fn documents(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(|(path, _)| path.ends_with(".md"))
    }

    /// The sources of each library and of each program, by their paths.
    pub(crate) fn crates(&self) -> Vec<BTreeMap<&str, &str>> {
        let mut crates: BTreeMap<String, BTreeMap<&str, &str>> = BTreeMap::new();
        for (path, text) in self.sources() {
            let Some((package, within)) = path.split_once("/src/") else { continue };
            let program = within.strip_prefix("bin/").and_then(|rest| rest.split('/').next());
            crates.entry(format!("{package} {}", program.unwrap_or_default())).or_default().insert(path, text);
        }
        crates.into_values().collect()
    }
}
