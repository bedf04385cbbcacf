//! What a capture is asked for, and why it is refused.

/// Which packets a capture copies, and how much of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureSpec {
    /// Where, each once: `port.NAME`; `stage.NAME` or `stage.NAME.OUTPUT`, for what the stage
    /// sends; `ring.NAME` or `injector.NAME`, for what is taken from it. Empty: at every port.
    pub points: Vec<String>,
    /// Bytes of a packet that are kept, from its first on.
    pub snap_bytes: usize,
    /// Only packets that have these bytes.
    pub filter: Option<CaptureFilter>,
    /// Packets of one lcore that may wait to be taken; what comes while as many wait is lost, and
    /// counted.
    pub depth_packets: usize,
}

/// Bytes that a packet must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureFilter {
    /// Where in the packet they begin.
    pub offset_bytes: usize,
    /// What is there.
    pub bytes: Vec<u8>,
}

impl CaptureFilter {
    pub(crate) fn matches(&self, data: &[u8]) -> bool {
        data.get(self.offset_bytes..).is_some_and(|rest| rest.starts_with(&self.bytes))
    }
}

impl CaptureSpec {
    /// The most bytes of a packet.
    pub const SNAP_BYTES_MAX: usize = 65_535;
    /// The most packets that may wait.
    pub const DEPTH_PACKETS_MAX: usize = 65_536;
    /// Bytes that the packets of one lcore that wait may take.
    pub const WAITING_BYTES_MAX: usize = 64 << 20;

    /// Insists that the capture's memory is bounded.
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
    /// Something that can't be done is asked for.
    #[error("{why}")]
    Invalid {
        /// What, and what can be.
        why: String,
    },
    /// The plan has no such place.
    #[error("nothing can be captured at {asked:?}; what can be is {}", known.join(", "))]
    NoPoint {
        /// What was asked for.
        asked: String,
        /// Where there can be a capture.
        known: Vec<String>,
    },
    /// A run has one capture at a time.
    #[error("another capture is under way; end it, or wait for it")]
    Busy,
    /// An lcore has not ended its part of the capture before: a stage there does not return.
    #[error("the lcore {lcore:?} has not heard yet that the last capture ended; ask again")]
    LcoreLate {
        /// Its name.
        lcore: String,
    },
    /// There is nothing to capture any more.
    #[error("the run is over")]
    Over,
}
