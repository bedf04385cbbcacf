//! The file of a secret.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use verbline_nvme::secret::{Secret, SecretError};

/// More bytes than any secret has.
const FILE_BYTES_MAX: u64 = 4096;
/// The beginning of a secret, by which it is told from a path.
const HEAD: &str = "DHHC-1:";
/// The bits of a file's mode that let others read or write it.
const OTHERS: u32 = 0o006;

/// A secret could not be read. The message never contains the secret.
#[derive(Debug, thiserror::Error)]
pub enum ReadSecretError {
    /// The plan contains the secret itself in place of its file.
    #[error(
        "the secret itself stands in the plan, which everybody reads who gets a copy of it: write it to a file that \
         its owner alone may read (chmod 600), and that file's path here"
    )]
    NoPath,
    /// The file can't be read.
    #[error("`{0}` can't be read: {1}; write the secret there, as `nvme gen-dhchap-key` prints it")]
    File(String, std::io::Error),
    /// The path is not a regular file with content.
    #[error("`{0}` is {1}, and no regular file: write the secret to one, as `nvme gen-dhchap-key` prints it")]
    Kind(String, &'static str),
    /// It holds no secret.
    #[error("in `{0}`: {1}; write one line there, as `nvme gen-dhchap-key` prints it")]
    Secret(String, SecretError),
}

/// Reads a secret of DH-HMAC-CHAP from a file. A file that others may read is accepted with a
/// warning.
///
/// # Errors
/// The path is a secret, or the file can't be read, is no regular one, is too long, or holds no
/// secret.
pub fn read_secret(path: &Path) -> Result<Secret, ReadSecretError> {
    if path.as_os_str().as_encoded_bytes().starts_with(HEAD.as_bytes()) {
        return Err(ReadSecretError::NoPath);
    }
    let shown = || path.display().to_string();
    let unreadable = |error| ReadSecretError::File(shown(), error);
    let file = open(path).map_err(unreadable)?;
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() {
        return Err(ReadSecretError::Kind(shown(), kind_of(found.file_type())));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(ReadSecretError::Secret(shown(), SecretError::Form));
    }
    if found.mode() & OTHERS != 0 {
        let (path, mode) = (shown(), found.mode() & 0o7777);
        tracing::warn!(
            "every user of this machine may read or change the secret in {path} (mode {mode:03o}): chmod 600"
        );
    }
    Secret::read(&text).map_err(|error| ReadSecretError::Secret(shown(), error))
}

/// Opens the file without waiting for the other end of a FIFO.
fn open(path: &Path) -> std::io::Result<File> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    OpenOptions::new().read(true).custom_flags(nonblocking.bits() as i32).open(path)
}

fn kind_of(kind: std::fs::FileType) -> &'static str {
    match kind {
        _ if kind.is_dir() => "a folder",
        _ if kind.is_fifo() => "a FIFO",
        _ if kind.is_char_device() || kind.is_block_device() => "a device",
        _ => "something else",
    }
}
