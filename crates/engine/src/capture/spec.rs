//! The settings of a capture, and the reasons to refuse it.

/// The packets that a capture copies, and how much of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureSpec {
    /// The points, each once: `port.NAME`; `stage.NAME` or `stage.NAME.OUTPUT`, for packets that
    /// the stage sends; `ring.NAME` or `injector.NAME`, for packets taken from it. Empty: every
    /// port.
    pub points: Vec<String>,
    /// The number of a packet's first bytes that are kept.
    pub snap_bytes: usize,
    /// Only packets with these bytes are copied.
    pub filter: Option<CaptureFilter>,
    /// Packets of one lcore that may wait to be taken. Further packets are lost meanwhile, and
    /// counted.
    pub depth_packets: usize,
}

/// Bytes that a packet must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureFilter {
    /// Their offset in the packet.
    pub offset_bytes: usize,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl CaptureFilter {
    pub(crate) fn matches(&self, data: &[u8]) -> bool {
        data.get(self.offset_bytes..).is_some_and(|rest| rest.starts_with(&self.bytes))
    }
}

/// Every packet at every port, whole; as many may wait as there is memory for.
impl Default for CaptureSpec {
    fn default() -> CaptureSpec {
        let snap_bytes = CaptureSpec::SNAP_BYTES_MAX;
        let depth_packets = CaptureSpec::WAITING_BYTES_MAX / snap_bytes;
        CaptureSpec { points: Vec::new(), snap_bytes, filter: None, depth_packets }
    }
}

impl CaptureSpec {
    /// The most bytes kept of a packet.
    pub const SNAP_BYTES_MAX: usize = 65_535;
    /// The most packets that may wait.
    pub const DEPTH_PACKETS_MAX: usize = 65_536;
    /// The most memory for the waiting packets of one lcore, in bytes.
    pub const WAITING_BYTES_MAX: usize = 64 << 20;

    /// Checks that the capture's memory is bounded.
    pub(crate) fn check(&self) -> Result<(), CaptureError> {
        let CaptureSpec { snap_bytes, depth_packets, .. } = self;
        let invalid = |why| Err(CaptureError::Invalid { why });
        if !(1..=CaptureSpec::SNAP_BYTES_MAX).contains(snap_bytes) {
            return invalid(format!(
                "a snap length of {snap_bytes} is not within 1 to {}",
                CaptureSpec::SNAP_BYTES_MAX
            ));
        }
        if !(1..=CaptureSpec::DEPTH_PACKETS_MAX).contains(depth_packets) {
            let most = CaptureSpec::DEPTH_PACKETS_MAX;
            return invalid(format!("a depth of {depth_packets} packets is not within 1 to {most}"));
        }
        if snap_bytes * depth_packets > CaptureSpec::WAITING_BYTES_MAX {
            let (bytes, most) = (snap_bytes * depth_packets, CaptureSpec::WAITING_BYTES_MAX);
            return invalid(format!("{depth_packets} packets of {snap_bytes} bytes are {bytes} bytes, over {most}"));
        }
        Ok(())
    }
}

/// Why there is no capture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The settings ask for something impossible.
    #[error("{why}")]
    Invalid {
        /// What was asked for, and what is possible.
        why: String,
    },
    /// The plan has no such point.
    #[error("nothing can be captured at {asked:?}; what can be is {}", known.join(", "))]
    NoPoint {
        /// The point asked for.
        asked: String,
        /// The points that a capture may have.
        known: Vec<String>,
    },
    /// A run has one capture at a time.
    #[error("another capture is under way; end it, or wait for it")]
    Busy,
    /// An lcore has not ended its part of the last capture: a stage there does not return.
    #[error("the lcore {lcore:?} has not heard yet that the last capture ended; ask again")]
    LcoreLate {
        /// Its name.
        lcore: String,
    },
    /// The run has nothing more to capture.
    #[error("the run is over")]
    Over,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: it was refused, as one that keeps nothing of a packet.
    #[test]
    fn the_default_is_a_capture() {
        assert_eq!(CaptureSpec::default().check(), Ok(()));
    }
}
