//! The parameters of a request for a capture or a trace.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use verbline_engine::{CaptureError, CaptureFilter, CaptureSpec, TraceError, TraceSpec};

/// Bytes of an lcore's packets that may wait to be written, unless the request has a depth.
const WAITING_BYTES: usize = 4 << 20;
/// The most packets that may wait, unless the request has a depth.
const DEPTH_PACKETS: usize = 4096;

/// The packets to capture, and how much of each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CaptureAsk {
    /// The points to capture at: `port.NAME`, `stage.NAME`, `stage.NAME.OUTPUT`, `ring.NAME` or
    /// `injector.NAME`; every port if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub at: Vec<String>,
    /// Bytes kept of each packet; [`CaptureAsk::SNAP_BYTES`] by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snap_bytes: Option<usize>,
    /// Packets of an lcore that may wait to be written; by default as many as 4 MiB hold, and at
    /// most 4096.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth_packets: Option<usize>,
    /// Leaves out the frames around the packets, with a link type of their own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub raw: bool,
    /// Captures only packets with these bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<FilterAsk>,
}

/// Bytes that a packet must have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterAsk {
    /// The offset in the packet at which they begin.
    pub offset: usize,
    /// The bytes, two digits each.
    pub hex: String,
}

impl CaptureAsk {
    /// The bytes kept of each packet by default.
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

/// The packets that a trace marks, and the part of the time that it records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceAsk {
    /// Marks packets that have these bytes when they are received, popped, or sent by a stage;
    /// without it all are marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<FilterAsk>,
    /// Records one millisecond in this many, and one whenever an lcore comes late to look for work;
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
