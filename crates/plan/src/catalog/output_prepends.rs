//! Headers: what a stage says that it puts in front of what it sends over an output.

/// What a stage puts in front of packets that it sends over one of its outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputPrepends {
    /// The output, one of [`StageSpec::outputs`](crate::StageSpec::outputs).
    pub output: &'static str,
    /// Bytes by which a packet begins before where it began as it came in, or was taken fresh, at
    /// most.
    pub bytes: u32,
}
