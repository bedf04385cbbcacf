//! What the reader of a file left out.

use std::collections::HashSet;

/// What is in the file and was refused as a whole, so that a reference to it is no fault of its
/// own.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    sorts: HashSet<&'static str>,
    names: HashSet<(&'static str, String)>,
}

impl Unread {
    pub(crate) fn has(&self, sort: &'static str, name: &str) -> bool {
        self.sorts.contains(sort) || (!self.names.is_empty() && self.names.contains(&(sort, name.to_owned())))
    }

    /// All of a sort.
    pub(crate) fn add_sort(&mut self, sort: &'static str) {
        self.sorts.insert(sort);
    }

    pub(crate) fn add(&mut self, sort: &'static str, name: &str) {
        self.names.insert((sort, name.to_owned()));
    }
}
