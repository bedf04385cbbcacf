//! What a row says when a device doesn't do what its rule asks: a [`Failure`] with expected and
//! got.

use std::fmt::{self, Debug, Display};

/// How a row ends. `Err` carries what was expected and what was seen.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Why a row did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The device does something else than the rule says.
    Broken(String),
    /// The device says itself that it can't; the text is what it said.
    Lacks(String),
}

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Failure {
        Failure::Broken(text.into())
    }

    /// The same, with what was being done in front.
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

/// Names what is being done in the failures of a step.
pub(crate) trait During<T> {
    fn during(self, what: impl Display) -> Outcome<T>;
}

impl<T, E: Into<Failure>> During<T> for Result<T, E> {
    fn during(self, what: impl Display) -> Outcome<T> {
        self.map_err(|error| error.into().during(what))
    }
}

/// `got` is `want`.
pub(crate) fn same<T: PartialEq + Debug>(what: impl Display, got: T, want: T) -> Outcome {
    if got == want { Ok(()) } else { Err(Failure::new(format!("{what}: expected {want:?}, got {got:?}"))) }
}

/// `got` is one of `wants`: the rule leaves the device a choice.
pub(crate) fn one_of<T: PartialEq + Debug>(what: impl Display, got: T, wants: &[T]) -> Outcome {
    if wants.contains(&got) {
        return Ok(());
    }
    Err(Failure::new(format!("{what}: expected one of {wants:?}, got {got:?}")))
}

/// `holds` is true; `says` is what that means.
pub(crate) fn ensure(holds: bool, says: impl Display) -> Outcome {
    if holds { Ok(()) } else { Err(Failure::new(format!("expected that {says}"))) }
}

/// `bytes` are `want`; a failure shows where they part, not kilobytes.
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
