//! Declarations of stage kinds that ask for operations.

use verbline_engine::OutputOperations;

/// Operations over `out`, of any kind.
pub(crate) const OPERATES: &[OutputOperations] = &[OutputOperations { output: "out", kinds: &[] }];
