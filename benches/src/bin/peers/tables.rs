//! The tables, and the comparisons in each.

use clap::ValueEnum;

use crate::group::Group;
use crate::{groups, wires};

/// A set of comparisons, shown together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Table {
    /// Ours beside the best that others have for the same work
    #[default]
    Peers,
    /// The software RNIC between processes, beside bare UDP sockets
    Wire,
}

impl Table {
    /// The groups, in the order of the table.
    pub(crate) fn groups(self) -> Vec<Group> {
        match self {
            Table::Peers => groups::all(),
            Table::Wire => wires::all(),
        }
    }

    /// Rows of the table that are not measured, with the reasons.
    pub(crate) fn omitted(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Table::Peers => &[],
            Table::Wire => &wires::OMITTED,
        }
    }

    /// The command that makes the table.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Table::Peers => "./x bench peers",
            Table::Wire => "./x bench wire",
        }
    }
}

/// The groups of all tables.
#[cfg(test)]
pub(crate) fn all_groups() -> Vec<Group> {
    [Table::Peers, Table::Wire].into_iter().flat_map(Table::groups).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::check_names;
    use crate::row::{Row, Source};
    use std::collections::BTreeSet;

    #[test]
    fn rows_have_names_of_their_own_and_say_what_they_are() {
        let groups = all_groups();
        let rows: Vec<&Row> = groups.iter().flat_map(|group| &group.rows).collect();
        let names: BTreeSet<&str> = rows.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), rows.len());
        assert!(rows.iter().all(|row| !row.what.is_empty() && !row.peer_name.is_empty()));
        for group in &groups {
            let figures = group.rows.iter().flat_map(|row| [row.ours, row.peer]);
            assert!(
                figures
                    .filter_map(|source| match source {
                        Source::Figure(index, _) => Some(index),
                        Source::Known(_) | Source::Nobody => None,
                    })
                    .all(|index| index < group.contenders.len()),
                "{}",
                group.name
            );
        }
    }

    #[test]
    fn a_row_that_there_is_not_is_refused_with_a_suggestion() {
        let error = check_names(&all_groups(), &["pool-packet".to_owned()]).unwrap_err().to_string();
        assert!(
            error.contains("pool-packet") && error.contains("`pool`?") || error.contains("`pool-packets`?"),
            "{error}"
        );
    }
}
