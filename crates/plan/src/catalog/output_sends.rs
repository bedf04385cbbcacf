//! Options of sends: what a stage says that it asks for over an output.

/// What a stage may ask of one of its sends, beside where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendOption {
    /// Immediate data.
    Immediate,
    /// To wait for the READs and atomics before it, which RC alone has.
    Fence,
    /// To wake a peer whose lcore says `unsolicited_wait`.
    Solicited,
    /// The packet back once its send is done.
    Returned,
}

/// The options of what a stage sends over one of its outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputSends {
    /// The output, one of [`StageSpec::outputs`](crate::StageSpec::outputs). Each port that it
    /// leads to must send packets as they ask.
    pub output: &'static str,
    /// The options that the stage asks for.
    pub options: &'static [SendOption],
}

impl SendOption {
    /// In a sentence.
    pub(crate) fn words(self) -> &'static str {
        match self {
            SendOption::Immediate => "immediate data",
            SendOption::Fence => "fences",
            SendOption::Solicited => "solicited events",
            SendOption::Returned => "packets that come back",
        }
    }
}
