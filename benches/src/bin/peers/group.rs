//! A comparison: the contenders that run in turn, and the rows that are read off.

use crate::contender::Contender;
use crate::error::RunError;
use crate::row::Row;

/// Contenders that are compared with one another.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) contenders: Vec<Contender>,
    pub(crate) rows: Vec<Row>,
    /// For figures that do not vary, such as counted instructions; otherwise as many as were asked
    /// for.
    pub(crate) rounds: Option<u32>,
    /// The contenders are points of a curve.
    pub(crate) plot: Option<Plot>,
}

/// What the points of a scaling group are.
pub(crate) struct Plot {
    pub(crate) x_name: &'static str,
    /// One for each contender.
    pub(crate) x: Vec<u32>,
    pub(crate) y_name: &'static str,
}

impl Group {
    /// A group that is no curve, of figures that vary.
    pub(crate) fn new(name: &'static str, contenders: Vec<Contender>, rows: Vec<Row>) -> Group {
        Group { name, contenders, rows, rounds: None, plot: None }
    }

    /// Whether one of these rows is in it; none asks for all.
    pub(crate) fn has(&self, names: &[String]) -> bool {
        self.rows.iter().any(|row| asked_for(row, names))
    }
}

/// Whether a row is among these; none asks for all.
pub(crate) fn asked_for(row: &Row, names: &[String]) -> bool {
    names.is_empty() || names.iter().any(|name| name == row.name)
}

/// Refuses a row that there is not.
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
