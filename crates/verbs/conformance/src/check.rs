//! The failure of a row whose device breaks its rule: a [`Failure`] with the expected and the
//! actual behaviour.

use std::fmt::{self, Debug, Display};

/// The result of a row. `Err` carries the expected and the seen behaviour.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Why a row did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The device breaks the rule.
    Broken(String),
    /// The device reports that it lacks a capability; the text is its report.
    Lacks(String),
}

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Failure {
        Failure::Broken(text.into())
    }

    /// Prefixes the failure with the step that failed.
    pub(crate) fn during(self, what: impl Display) -> Failure {
        match self {
            Failure::Broken(text) => Failure::Broken(format!("{what}: {text}")),
            lacks => lacks,
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Broken(text) | Failure::Lacks(text) => f.write_str(text),
        }
    }
}

/// Adds a step's name to its failures.
pub(crate) trait During<T> {
    fn during(self, what: impl Display) -> Outcome<T>;
}

impl<T, E: Into<Failure>> During<T> for Result<T, E> {
    fn during(self, what: impl Display) -> Outcome<T> {
        self.map_err(|error| error.into().during(what))
    }
}

/// Checks that `got` is `want`.
pub(crate) fn same<T: PartialEq + Debug>(what: impl Display, got: T, want: T) -> Outcome {
    if got == want { Ok(()) } else { Err(Failure::new(format!("{what}: expected {want:?}, got {got:?}"))) }
}

/// Checks that `got` is one of `wants`: the rule leaves the device a choice.
pub(crate) fn one_of<T: PartialEq + Debug>(what: impl Display, got: T, wants: &[T]) -> Outcome {
    if wants.contains(&got) {
        return Ok(());
    }
    Err(Failure::new(format!("{what}: expected one of {wants:?}, got {got:?}")))
}

/// Checks that `holds` is true; `says` is the meaning of that.
pub(crate) fn ensure(holds: bool, says: impl Display) -> Outcome {
    if holds { Ok(()) } else { Err(Failure::new(format!("expected that {says}"))) }
}

/// Checks that `bytes` are `want`; a failure shows where they differ, not kilobytes.
pub(crate) fn same_bytes(what: impl Display, bytes: &[u8], want: &[u8]) -> Outcome {
    if bytes.len() != want.len() {
        return Err(Failure::new(format!("{what}: expected {} bytes, got {}", want.len(), bytes.len())));
    }
    match bytes.iter().zip(want).position(|(got, want)| got != want) {
        None => Ok(()),
        Some(at) => {
            let (want, got) = (want[at], bytes[at]);
            Err(Failure::new(format!("{what}: byte {at} of {}: expected {want:#04x}, got {got:#04x}", bytes.len())))
        }
    }
}
