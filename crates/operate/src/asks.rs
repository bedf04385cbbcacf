//! What a client asks of a capture or a trace: a part of its request.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use verbline_engine::{CaptureError, CaptureFilter, CaptureSpec, TraceError, TraceSpec};

/// Bytes that the packets of an lcore that wait may take where no depth is asked for.
const WAITING_BYTES: usize = 4 << 20;
/// Packets that may wait where no depth is asked for.
const DEPTH_PACKETS: usize = 4096;

/// Which packets, and how much of each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CaptureAsk {
    /// Where: `port.NAME`, `stage.NAME`, `stage.NAME.OUTPUT`, `ring.NAME` or `injector.NAME`;
    /// empty: at every port.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub at: Vec<String>,
    /// Bytes of a packet that are kept; [`CaptureAsk::SNAP_BYTES`] unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snap_bytes: Option<usize>,
    /// Packets of an lcore that may wait to be written; as many as 4 MiB hold unless said, and 4096
    /// at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth_packets: Option<usize>,
    /// Without frames around the packets, as a link type of their own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub raw: bool,
    /// Only packets that have these bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<FilterAsk>,
}

/// Bytes that a packet must have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterAsk {
    /// Where in the packet they begin.
    pub offset: usize,
    /// What is there, two digits a byte.
    pub hex: String,
}

impl CaptureAsk {
    /// Bytes of a packet that are kept unless said.
    pub const SNAP_BYTES: usize = 256;

    pub(crate) fn spec(&self) -> Result<CaptureSpec, CaptureError> {
        let snap_bytes = self.snap_bytes.unwrap_or(CaptureAsk::SNAP_BYTES);
        let affordable = (WAITING_BYTES / snap_bytes.max(1)).clamp(1, DEPTH_PACKETS);
        let filter = self.filter.as_ref().map(FilterAsk::filter).transpose();
        let filter = filter.map_err(|why| CaptureError::Invalid { why })?;
        Ok(CaptureSpec {
            points: self.at.clone(),
            snap_bytes,
            filter,
            depth_packets: self.depth_packets.unwrap_or(affordable),
        })
    }
}

impl FilterAsk {
    pub(crate) fn filter(&self) -> Result<CaptureFilter, String> {
        let FilterAsk { offset, hex } = self;
        let digits: Option<Vec<u8>> = hex.chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect();
        match digits.filter(|digits| !digits.is_empty() && digits.len() % 2 == 0) {
            Some(digits) => {
                let bytes = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
                Ok(CaptureFilter { offset_bytes: *offset, bytes })
            }
            None => Err(format!("{hex:?} is no row of bytes, two hexadecimal digits each")),
        }
    }
}

/// What a trace marks, and how much it records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceAsk {
    /// Marks packets that have these bytes as they are received, popped, or sent by a stage;
    /// without it all are marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<FilterAsk>,
    /// Records one millisecond in this many, and one as an lcore comes late to look for work;
    /// without it everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_in: Option<NonZeroU32>,
}

impl TraceAsk {
    pub(crate) fn spec(&self) -> Result<TraceSpec, TraceError> {
        let filter = self.filter.as_ref().map(FilterAsk::filter).transpose();
        Ok(TraceSpec { filter: filter.map_err(|why| TraceError::Invalid { why })?, one_in: self.one_in })
    }
}
