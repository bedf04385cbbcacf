//! The recorded FORTS feed: three files of FAST messages back to back, split into the datagrams
//! that a publisher sends.
//!
//! The recording (Moscow Exchange derivatives, 2013-08-01 14:24:37 to 14:31:00) comes from
//! penberg/libtrading, data/micex. A datagram here is a reset and the message after it; boundaries
//! are found by decoding, so what loads is known to decode.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::decode::Decoder;
use super::error::DecodeError;
use super::message::{Message, MessageKind};
use super::template::{TemplateError, Templates};

const TEMPLATES: &str = "micex_templates.xml";
const CONFIG: &str = "micex_config.xml";
const INCREMENT_A: &str = "micex_increment_a.dat";
const INCREMENT_B: &str = "micex_increment_b.dat";
const SNAPSHOT: &str = "micex_snapshot.dat";

/// Why the recording cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MoexError {
    /// Files are missing.
    #[error(
        "no MOEX FORTS recording in {}: missing {}; give the folder that holds the five micex_* files \
         (of penberg/libtrading, data/micex)",
        .dir.display(),
        .missing.join(", ")
    )]
    Absent {
        /// Where it was looked for.
        dir: PathBuf,
        /// The files that are not there.
        missing: Vec<&'static str>,
    },
    /// A file is there and cannot be read.
    #[error("cannot read {}: {error}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// The template file cannot be used.
    #[error("{}: {error}", .path.display())]
    Templates {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: TemplateError,
    },
    /// The configuration cannot be used.
    #[error("{}: {what}", .path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A recording without a byte, which is what an interrupted download leaves.
    #[error("{} is empty; fetch the file again", .path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A recording does not decode to its end.
    #[error("{} after {messages} messages: {error}; fetch the file again", .path.display())]
    Decode {
        /// The file.
        path: PathBuf,
        /// Messages that decoded before it.
        messages: usize,
        /// What is wrong, with the offset in the file.
        error: DecodeError,
    },
}

/// One datagram of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    /// Its bytes in [`Recording::bytes`].
    pub range: Range<usize>,
    /// `MsgSeqNum` (34).
    pub msg_seq_num: u32,
    /// What it is.
    pub kind: MessageKind,
    /// `SendingTime` (52) as milliseconds since midnight, 0 when it is none.
    pub sent_ms_of_day: u32,
}

/// One file, split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// The file.
    pub bytes: Vec<u8>,
    /// Its datagrams in order; together they are all of the bytes.
    pub datagrams: Vec<Datagram>,
}

impl Recording {
    /// Splits FAST messages that stand back to back, each after a reset.
    ///
    /// # Errors
    /// What does not decode, at its offset in `bytes`, and how many messages decoded before it.
    pub fn split(bytes: Vec<u8>, decoder: &mut Decoder) -> Result<Self, (usize, DecodeError)> {
        let mut datagrams = Vec::new();
        let mut message = Message::new();
        let mut at = 0;
        while at < bytes.len() {
            let len = decoder.decode_front(&bytes[at..], &mut message).map_err(|mut error| {
                error.offset_bytes += at;
                (datagrams.len(), error)
            })?;
            datagrams.push(Datagram {
                range: at..at + len,
                msg_seq_num: message.msg_seq_num,
                kind: message.kind,
                sent_ms_of_day: message.sending_time_ms_of_day().unwrap_or(0),
            });
            at += len;
        }
        Ok(Self { bytes, datagrams })
    }

    /// The bytes of a datagram.
    pub fn datagram(&self, index: usize) -> Option<&[u8]> {
        Some(&self.bytes[self.datagrams.get(index)?.range.clone()])
    }

    /// All datagrams in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Datagram, &[u8])> + '_ {
        self.datagrams.iter().map(|d| (d, &self.bytes[d.range.clone()]))
    }

    /// The longest datagram in bytes, 0 of an empty recording.
    pub fn len_bytes_max(&self) -> usize {
        self.datagrams.iter().map(|d| d.range.len()).max().unwrap_or(0)
    }
}

/// An instrument that the configuration names; the feed has more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instrument {
    /// The symbol.
    pub symbol: String,
    /// `SecurityID`.
    pub security_id: u64,
}

/// The recording: both incremental channels, the snapshots, the templates.
#[derive(Debug)]
pub struct MoexFeed {
    /// The incremental channels A and B.
    pub increments: [Recording; 2],
    /// The snapshot channel.
    pub snapshots: Recording,
    /// The instruments that the configuration names.
    pub instruments: Vec<Instrument>,
    templates_xml: String,
}

impl MoexFeed {
    /// Loads and splits the recording in a folder.
    ///
    /// # Errors
    /// Files are missing (all of them are named), unreadable, or do not decode to their last byte.
    pub fn open(dir: &Path) -> Result<Self, MoexError> {
        let files = [TEMPLATES, CONFIG, INCREMENT_A, INCREMENT_B, SNAPSHOT];
        let missing: Vec<_> = files.into_iter().filter(|file| !dir.join(file).is_file()).collect();
        if !missing.is_empty() {
            let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
            return Err(MoexError::Absent { dir, missing });
        }
        let templates_xml = read_text(dir.join(TEMPLATES))?;
        let templates = Templates::from_xml(&templates_xml)
            .map_err(|error| MoexError::Templates { path: dir.join(TEMPLATES), error })?;
        let instruments = instruments(dir.join(CONFIG))?;
        let mut decoder = Decoder::new(templates);
        let mut load = |file| {
            let path = dir.join(file);
            let bytes = std::fs::read(&path).map_err(|error| MoexError::Read { path: path.clone(), error })?;
            if bytes.is_empty() {
                return Err(MoexError::Empty { path });
            }
            Recording::split(bytes, &mut decoder).map_err(|(messages, error)| MoexError::Decode {
                path,
                messages,
                error,
            })
        };
        Ok(Self {
            increments: [load(INCREMENT_A)?, load(INCREMENT_B)?],
            snapshots: load(SNAPSHOT)?,
            instruments,
            templates_xml,
        })
    }

    /// A decoder for this feed; each lcore has its own.
    pub fn decoder(&self) -> Decoder {
        Decoder::new(Templates::from_xml(&self.templates_xml).expect("it was compiled when the feed was opened"))
    }

    /// The template file's text.
    pub fn templates_xml(&self) -> &str {
        &self.templates_xml
    }
}

fn read_text(path: PathBuf) -> Result<String, MoexError> {
    std::fs::read_to_string(&path).map_err(|error| MoexError::Read { path, error })
}

fn instruments(path: PathBuf) -> Result<Vec<Instrument>, MoexError> {
    let text = read_text(path.clone())?;
    let config = |what: String| MoexError::Config { path: path.clone(), what };
    let document = roxmltree::Document::parse(&text).map_err(|e| config(format!("not XML: {e}")))?;
    document
        .descendants()
        .filter(|n| n.has_tag_name("book"))
        .map(|book| {
            let symbol = book.attribute("symbol").ok_or_else(|| config("a <book> without a symbol".into()))?;
            let id = book.children().find(|n| n.has_tag_name("id")).and_then(|n| n.attribute("value"));
            let security_id = id
                .and_then(|v| v.parse().ok())
                .ok_or_else(|| config(format!("book {symbol} has no numeric <id value>")))?;
            Ok(Instrument { symbol: symbol.to_string(), security_id })
        })
        .collect()
}
