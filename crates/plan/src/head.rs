//! The header of a table.

use crate::source::Span;

/// What a table is called, and where.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) name: String,
    pub(crate) span: Span,
}

impl Head {
    pub(crate) fn nobody() -> Head {
        Head { name: String::new(), span: Span::new(0, 0..0) }
    }
}
