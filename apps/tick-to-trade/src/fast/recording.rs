//! The recorded FORTS feed: three files of consecutive FAST messages, split into the datagrams that
//! a publisher sends.
//!
//! The recording (Moscow Exchange derivatives, 2013-08-01 14:24:37 to 14:31:00) comes from
//! penberg/libtrading, data/micex. A datagram here is a reset and the message after it. Decoding
//! finds the boundaries, so every loaded datagram is known to decode.

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
        /// The folder that was searched.
        dir: PathBuf,
        /// The missing files.
        missing: Vec<&'static str>,
    },
    /// A file exists but cannot be read.
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
        /// The defect.
        error: TemplateError,
    },
    /// The configuration cannot be used.
    #[error("{}: {what}", .path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The defect.
        what: String,
    },
    /// A recording of 0 bytes, as an interrupted download leaves it.
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
        /// Messages decoded before the defect.
        messages: usize,
        /// The defect, with its offset in the file.
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
    /// The kind.
    pub kind: MessageKind,
    /// `SendingTime` (52) as milliseconds since midnight; 0 if it is not a time of day.
    pub sent_ms_of_day: u32,
}

/// One file, split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// The file's contents.
    pub bytes: Vec<u8>,
    /// Its datagrams in order; together they cover all bytes.
    pub datagrams: Vec<Datagram>,
}

impl Recording {
    /// Splits consecutive FAST messages, each after a reset.
    ///
    /// # Errors
    /// The decoding error, at its offset in `bytes`, and how many messages decoded before it.
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

    /// The length of the longest datagram in bytes; 0 for an empty recording.
    pub fn len_bytes_max(&self) -> usize {
        self.datagrams.iter().map(|d| d.range.len()).max().unwrap_or(0)
    }
}

/// An instrument of the configuration; the feed has more.
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
    /// The instruments of the configuration.
    pub instruments: Vec<Instrument>,
    templates_xml: String,
}

impl MoexFeed {
    /// Loads and splits the recording in a folder.
    ///
    /// # Errors
    /// Files are missing (the error lists all of them), unreadable, or do not decode to their last
    /// byte.
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
