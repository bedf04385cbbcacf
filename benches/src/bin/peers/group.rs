//! A comparison: the contenders that take turns, and the rows read from their figures.

use crate::contender::Contender;
use crate::error::RunError;
use crate::row::Row;

/// Contenders that are compared with one another.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) contenders: Vec<Contender>,
    pub(crate) rows: Vec<Row>,
    /// The number of rounds for constant figures, such as counted instructions; `None` for the
    /// requested number.
    pub(crate) rounds: Option<u32>,
    /// The axes, if the contenders are points of a curve.
    pub(crate) plot: Option<Plot>,
}

/// The axes of a scaling group's curve.
pub(crate) struct Plot {
    pub(crate) x_name: &'static str,
    /// One value per contender.
    pub(crate) x: Vec<u32>,
    pub(crate) y_name: &'static str,
}

impl Group {
    /// A group without a curve, with varying figures.
    pub(crate) fn new(name: &'static str, contenders: Vec<Contender>, rows: Vec<Row>) -> Group {
        Group { name, contenders, rows, rounds: None, plot: None }
    }

    /// Whether the group has one of these rows; an empty list selects all.
    pub(crate) fn has(&self, names: &[String]) -> bool {
        self.rows.iter().any(|row| asked_for(row, names))
    }
}

/// Whether a row is among these; an empty list selects all.
pub(crate) fn asked_for(row: &Row, names: &[String]) -> bool {
    names.is_empty() || names.iter().any(|name| name == row.name)
}

/// Refuses an unknown row.
pub(crate) fn check_names(groups: &[Group], names: &[String]) -> Result<(), RunError> {
    let known = || groups.iter().flat_map(|group| &group.rows).map(|row| row.name);
    match names.iter().find(|name| !known().any(|row| row == name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let near = known().find(|row| row.contains(name.as_str()) || name.contains(row)).map(str::to_owned);
            Err(RunError::UnknownRow { name: name.clone(), near })
        }
    }
}
