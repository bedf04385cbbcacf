//! The arguments of `capture`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use verbline_operate::{CaptureAsk, FilterAsk};

use super::times::duration;

/// Options of `capture`.
#[derive(Args, Debug)]
pub(super) struct CaptureOptions {
    /// The run: its name, its process, or the path of its socket; may be left out if there is one
    pub(super) name: Option<String>,
    /// Capture at this place; may be repeated; without it at every port: port.NAME, stage.NAME or
    /// stage.NAME.OUTPUT (what it sends), ring.NAME or injector.NAME (what is taken from it)
    #[arg(long, value_name = "PLACE")]
    at: Vec<String>,
    /// The same as --at port.PORT
    #[arg(long = "port", value_name = "PORT")]
    ports: Vec<String>,
    /// The file, which must not be there yet; `-` for standard output
    #[arg(long, short, value_name = "FILE")]
    pub(super) write: PathBuf,
    /// Write over a file that is there
    #[arg(long)]
    pub(super) force: bool,
    /// Keep only this many bytes of each packet
    #[arg(long, short, value_name = "BYTES", default_value_t = CaptureAsk::SNAP_BYTES)]
    snap: usize,
    /// End after this number of packets
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: Option<u64>,
    /// End after this time: seconds, or e.g. 500ms, 10s, 1h
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub(super) length: Option<Duration>,
    /// Keep only packets with these bytes at this offset, e.g. 4=0800
    #[arg(long, value_name = "OFFSET=HEX", value_parser = filter)]
    filter: Option<FilterAsk>,
    /// Write packets of ports as they are too, without frames around them, as link type USER0
    #[arg(long)]
    raw: bool,
    /// Begin another file, FILE with a number, when one has this size: bytes, or e.g. 64MiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(super) file_size: Option<u64>,
    /// Keep only this many files, the latest
    #[arg(long, value_name = "N", requires = "file_size", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) files: Option<u64>,
    /// Packets of an lcore that may wait to be written; what comes while as many wait is lost
    #[arg(long, value_name = "PACKETS")]
    depth: Option<usize>,
}

impl CaptureOptions {
    pub(super) fn ask(&self) -> CaptureAsk {
        CaptureAsk {
            at: self.at.iter().cloned().chain(self.ports.iter().map(|port| format!("port.{port}"))).collect(),
            snap_bytes: Some(self.snap),
            depth_packets: self.depth,
            raw: self.raw,
            filter: self.filter.clone(),
        }
    }
}

/// `OFFSET=HEX`.
pub(super) fn filter(text: &str) -> Result<FilterAsk, String> {
    let parts = text.split_once('=').and_then(|(offset, hex)| Some((offset.parse().ok()?, hex)));
    match parts {
        Some((offset, hex)) => Ok(FilterAsk { offset, hex: hex.to_owned() }),
        None => Err("write an offset and bytes, e.g. 4=0800".to_owned()),
    }
}

fn size(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let unit = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (number, shift) = unit.unwrap_or((text, 0));
    let bytes = number.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| "write bytes, or e.g. 512KiB or 64MiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_filters_are_read_or_said_to_be_none() {
        assert_eq!(["1", "2KiB", "3 MiB", "1GiB"].map(|text| size(text).unwrap()), [1, 2048, 3 << 20, 1 << 30]);
        for text in ["", "0", "-1", "1.5MiB", "1TiB", "99999999999GiB"] {
            assert!(size(text).is_err(), "{text}");
        }
        assert_eq!(filter("4=0800").unwrap(), FilterAsk { offset: 4, hex: "0800".into() });
        assert!(filter("0800").is_err() && filter("x=08").is_err());
    }
}
