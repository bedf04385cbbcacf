//! The file of a secret.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use verbline_nvme::secret::{Secret, SecretError};

/// Longer than any secret.
const FILE_BYTES_MAX: u64 = 4096;
/// How a secret begins, and no path.
const HEAD: &str = "DHHC-1:";
/// Bits of a file's mode by which others may read it, or write to it.
const OTHERS: u32 = 0o006;

/// A secret can't be had. The secret is not in it.
#[derive(Debug, thiserror::Error)]
pub enum ReadSecretError {
    /// The plan has the secret in place of the file.
    #[error(
        "the secret itself stands in the plan, which everybody reads who gets a copy of it: write it to a file that \
         its owner alone may read (chmod 600), and that file's path here"
    )]
    NoPath,
    /// The file can't be read.
    #[error("`{0}` can't be read: {1}; write the secret there, as `nvme gen-dhchap-key` prints it")]
    File(String, std::io::Error),
    /// It is no file that holds something.
    #[error("`{0}` is {1}, and no regular file: write the secret to one, as `nvme gen-dhchap-key` prints it")]
    Kind(String, &'static str),
    /// It holds no secret.
    #[error("in `{0}`: {1}; write one line there, as `nvme gen-dhchap-key` prints it")]
    Secret(String, SecretError),
}

/// Reads the secret of DH-HMAC-CHAP that a file holds. A file that others may read is one to warn
/// of, and is read.
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

/// Opens it without waiting for the other end of a FIFO.
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
