//! The file of a secret.

use std::path::Path;

use verbline_nvme::secret::{Secret, SecretError};

/// Longer than any secret.
const FILE_BYTES_MAX: u64 = 4096;

/// A secret can't be had. The secret is not in it.
#[derive(Debug, thiserror::Error)]
pub enum ReadSecretError {
    /// The file can't be read.
    #[error("`{0}` can't be read: {1}; write the secret there, as `nvme gen-dhchap-key` prints it")]
    File(String, std::io::Error),
    /// It holds no secret.
    #[error("in `{0}`: {1}; write one line there, as `nvme gen-dhchap-key` prints it")]
    Secret(String, SecretError),
}

/// Reads the secret of DH-HMAC-CHAP that a file holds.
///
/// # Errors
/// The file can't be read, is too long, or holds no secret.
pub fn read_secret(path: &Path) -> Result<Secret, ReadSecretError> {
    let shown = || path.display().to_string();
    let unreadable = |error| ReadSecretError::File(shown(), error);
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if metadata.len() > FILE_BYTES_MAX {
        return Err(ReadSecretError::Secret(shown(), SecretError::Form));
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    Secret::read(&text).map_err(|error| ReadSecretError::Secret(shown(), error))
}
