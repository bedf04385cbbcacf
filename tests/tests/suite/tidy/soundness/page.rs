//! docs/soundness.md as a table: the types of each section, and its functions with their lines.

use std::collections::{BTreeMap, BTreeSet};

/// The sections of the page. A line counts for each type of its section's heading.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Page {
    pub(crate) sections: Vec<Section>,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Section {
    /// `mem::Packet`, or `ring` for functions without a type.
    pub(crate) types: Vec<String>,
    /// Every name, and the number of words in its line.
    pub(crate) names: BTreeMap<String, usize>,
}

impl Page {
    /// A heading of the third level names types. A list below it names functions, then gives the
    /// reason behind a colon.
    pub(crate) fn read(text: &str) -> Page {
        let mut page = Page::default();
        let mut item: Option<String> = None;
        for line in text.lines().chain([""]) {
            let continues = line.starts_with("  ");
            if let Some(whole) = item.take_if(|_| !continues) {
                page.add_item(&whole);
            }
            match (&mut item, line.strip_prefix("- ")) {
                (Some(whole), _) => *whole = format!("{whole} {}", line.trim()),
                (None, Some(start)) => item = Some(start.to_owned()),
                (None, None) => {}
            }
            if let Some(title) = line.strip_prefix("### ") {
                page.sections.push(Section { types: quoted(title), names: BTreeMap::new() });
            } else if line.starts_with("## ") {
                page.sections.push(Section::default());
            }
        }
        page
    }

    fn add_item(&mut self, item: &str) {
        let (names, reason) = item.split_once(": ").unwrap_or((item, ""));
        let Some(section) = self.sections.last_mut().filter(|section| !section.types.is_empty()) else { return };
        section.names.extend(quoted(names).into_iter().map(|name| (name, reason.split_whitespace().count())));
    }

    /// The functions of one type that have a line.
    pub(crate) fn names_of(&self, of: &str) -> BTreeSet<&str> {
        let sections = self.sections.iter().filter(|section| section.types.iter().any(|name| name == of));
        sections.flat_map(|section| section.names.keys().map(String::as_str)).collect()
    }
}

/// What stands between backticks.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}
