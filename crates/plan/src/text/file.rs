//! Reads a plan from a regular file or from standard input: never more than a plan can have, and
//! never from a file that may block.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use crate::diag::diagnostics::{Diagnostic, Severity};
use crate::diag::source::{Sources, Span, TEXT_BYTES_MAX};

/// The names of standard input on a command line.
const STDIN: [&str; 2] = ["-", "/dev/stdin"];

const CHECK_PATH: &str = "see whether the path is right; it begins at the folder that the program runs in";
const CHECK_ROOTED_PATH: &str = "see whether the path is right";
const TOO_LONG: &str = "see whether this is the plan that you mean; move data for a stage into a file of its own, and \
                        name that in the stage's `params`";
const NAME_A_PLAN: &str = "name a plan file, e.g. config/tick-to-trade.toml";

/// The name of the plan at `path` in diagnostics.
pub(crate) fn name_of(path: &Path) -> String {
    if is_stdin(path) { "stdin".to_owned() } else { path.display().to_string() }
}

/// Reads the text of the plan at `path`, or tells why it can't be one.
pub(crate) fn read(path: &Path) -> Result<String, Diagnostic> {
    let name = name_of(path);
    let bytes = bytes_of(path).map_err(|refused| refused.at(&name))?;
    String::from_utf8(bytes).map_err(|error| not_utf8(&name, error.as_bytes(), error.utf8_error().valid_up_to()))
}

/// The fault of a text above the greatest length.
pub(crate) fn too_long(name: &str, bytes: u64) -> Diagnostic {
    Refused::too_long(Some(bytes)).at(name)
}

/// Whether this path is standard input, which can be read only once.
pub fn is_stdin(path: &Path) -> bool {
    STDIN.iter().any(|name| path == Path::new(name))
}

struct Refused {
    message: String,
    help: &'static str,
}

impl Refused {
    /// `bytes` is `None` if the rest was not read.
    fn too_long(bytes: Option<u64>) -> Refused {
        let message = match bytes {
            Some(bytes) => format!("this has {bytes} bytes, and a plan has at most {TEXT_BYTES_MAX}"),
            None => format!("this has more than the {TEXT_BYTES_MAX} bytes that a plan may have"),
        };
        Refused { message, help: TOO_LONG }
    }

    /// A file at `path` can't be read.
    fn io(path: &Path, error: &io::Error) -> Refused {
        let help = match error.kind() {
            ErrorKind::PermissionDenied => "let this user read the file",
            _ if path.is_absolute() || is_stdin(path) => CHECK_ROOTED_PATH,
            _ => CHECK_PATH,
        };
        Refused { message: format!("can't read the plan: {error}"), help }
    }

    fn at(self, name: &str) -> Diagnostic {
        let sources = Sources::new(name, "", &[]);
        let mut one = Diagnostic::new(&sources, Severity::Error, "unreadable", None, self.message);
        one.help(self.help);
        one
    }
}

/// Reads at most one byte more than the greatest length of a plan.
fn bytes_of(path: &Path) -> Result<Vec<u8>, Refused> {
    let failed = |error| Refused::io(path, &error);
    if is_stdin(path) {
        let bytes = first_bytes(io::stdin().lock()).map_err(failed)?;
        return if bytes.len() > TEXT_BYTES_MAX { Err(Refused::too_long(None)) } else { Ok(bytes) };
    }
    // The type is checked before the file is opened, since opening a device may have effects, and
    // after, since it may be another file by now.
    regular(fs::metadata(path).map_err(failed)?.file_type())?;
    let flags = OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = opened.map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    regular(metadata.file_type())?;
    let bytes = first_bytes(file).map_err(failed)?;
    match bytes.len() > TEXT_BYTES_MAX {
        true => Err(Refused::too_long(Some(metadata.len()).filter(|len| *len > TEXT_BYTES_MAX as u64))),
        false => Ok(bytes),
    }
}

fn first_bytes(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(TEXT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn regular(kind: fs::FileType) -> Result<(), Refused> {
    let (what, help) = match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => ("a directory", NAME_A_PLAN),
        kind if kind.is_fifo() => ("a pipe", "write `-` for the file, and give the plan on standard input"),
        kind if kind.is_socket() => ("a socket", NAME_A_PLAN),
        _ => ("a device", NAME_A_PLAN),
    };
    let message = format!("can't read the plan: this is {what}, not a regular file");
    Err(Refused { message, help })
}

/// The place is the end of the valid text, unless the file is no text at all.
fn not_utf8(name: &str, bytes: &[u8], valid: usize) -> Diagnostic {
    let is_binary = bytes.iter().take(1024).any(|byte| *byte == 0);
    let utf16 = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    if is_binary && !utf16 {
        let message = "this is not a text, so it is no plan".to_owned();
        return Refused { message, help: NAME_A_PLAN }.at(name);
    }
    // The bytes before are valid, so the place has a line and a column.
    let text = std::str::from_utf8(&bytes[..valid]).unwrap_or_default();
    let sources = Sources::new(name, text, &[]);
    let byte = bytes.get(valid).copied().unwrap_or(0);
    let message = format!("the plan is not UTF-8 text: the byte 0x{byte:02x} at offset {valid} does not belong there");
    let mut one = Diagnostic::new(&sources, Severity::Error, "unreadable", Span::new(0, valid..valid), message);
    one.help(match utf16 {
        true => "this looks like UTF-16; save the file as UTF-8",
        false => "save the file as UTF-8, e.g. with `iconv -f ISO-8859-1 -t UTF-8`",
    });
    one
}
