//! Secrets of DH-HMAC-CHAP, and the computations with them (Base 2.0, 8.13.5): the key of a host,
//! its response to a challenge, and the check of a response.
//!
//! Neither [`Secret`] nor [`Key`] shows its bytes, in `Debug` or in an error.

use std::fmt;

use base64ct::{Base64, Encoding};
use crc_fast::{CrcAlgorithm, checksum};
use hmac::{Hmac, Mac};
use sha2::{Sha256, Sha384, Sha512};

use crate::nqn::Nqn;

/// The longest digest, bytes.
pub const DIGEST_BYTES_MAX: usize = 64;

const CRC_BYTES: usize = 4;
const HEAD: &str = "DHHC-1:";
/// Input to the transformation of a secret into a key, behind the host's name.
const OF_KEYS: &[u8] = b"NVMe-over-Fabrics";

/// A hash function, by its identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Hash {
    /// SHA-256.
    Sha256 = 1,
    /// SHA-384.
    Sha384 = 2,
    /// SHA-512.
    Sha512 = 3,
}

impl Hash {
    /// All known hashes.
    pub const ALL: [Hash; 3] = [Hash::Sha256, Hash::Sha384, Hash::Sha512];

    /// Returns the hash with an identifier.
    pub fn of(identifier: u8) -> Option<Hash> {
        Hash::ALL.into_iter().find(|hash| *hash as u8 == identifier)
    }

    /// Length of a digest, and of a challenge, bytes.
    pub const fn len_bytes(self) -> usize {
        match self {
            Hash::Sha256 => 32,
            Hash::Sha384 => 48,
            Hash::Sha512 => 64,
        }
    }
}

/// A digest, or a challenge: 32, 48 or 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    len: u8,
    bytes: [u8; DIGEST_BYTES_MAX],
}

impl Digest {
    /// Makes a digest of bytes; `None` if their number is no hash's.
    pub fn new(bytes: &[u8]) -> Option<Digest> {
        Hash::ALL.iter().find(|hash| hash.len_bytes() == bytes.len())?;
        let mut digest = Digest { len: bytes.len() as u8, bytes: [0; DIGEST_BYTES_MAX] };
        digest.bytes[..bytes.len()].copy_from_slice(bytes);
        Some(digest)
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({} bytes)", self.len)
    }
}

/// A secret, as an administrator configures it.
#[derive(Clone, Copy)]
pub struct Secret {
    secret: Digest,
    /// The hash that transforms the secret into the key; `None`: the secret is the key.
    transform: Option<Hash>,
}

/// A text that is no secret. The error does not contain the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The text is not of the form `DHHC-1:NN:…:`.
    #[error("it is not of the form DHHC-1:NN:BASE64:")]
    Form,
    /// NN is not 00 to 03.
    #[error("its hash is none of 00 (none), 01 (SHA-256), 02 (SHA-384) and 03 (SHA-512)")]
    Transform,
    /// The third part is not Base64 with padding.
    #[error("its third part is not Base64")]
    Base64,
    /// The length is not that of a digest and its checksum.
    #[error("it holds {0} bytes, not 32, 48 or 64 and 4 of a checksum")]
    Length(usize),
    /// The checksum is wrong.
    #[error("its checksum is wrong: a character is missing, or is another one")]
    Checksum,
}

impl Secret {
    /// Reads a secret: `DHHC-1:NN:`, the Base64 of the secret and its CRC-32, and `:`. Blanks
    /// around it are ignored.
    ///
    /// # Errors
    /// The form, the length or the checksum is wrong.
    pub fn read(text: &str) -> Result<Secret, SecretError> {
        let parts = text.trim().strip_prefix(HEAD).and_then(|rest| rest.strip_suffix(':')?.split_once(':'));
        let (transform, coded) = parts.ok_or(SecretError::Form)?;
        let transform = match transform {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            _ => return Err(SecretError::Transform),
        };
        let mut bytes = [0; 2 * DIGEST_BYTES_MAX];
        if coded.len() > bytes.len() {
            return Err(SecretError::Length(coded.len() / 4 * 3));
        }
        let bytes = Base64::decode(coded, &mut bytes).map_err(|_| SecretError::Base64)?;
        let wrong = SecretError::Length(bytes.len());
        let (secret, crc) = bytes.split_last_chunk::<CRC_BYTES>().ok_or(wrong)?;
        let digest = Digest::new(secret).ok_or(wrong)?;
        if checksum(CrcAlgorithm::Crc32IsoHdlc, secret) as u32 != u32::from_le_bytes(*crc) {
            return Err(SecretError::Checksum);
        }
        Ok(Secret { secret: digest, transform })
    }

    /// Computes the key by which the host of this name authenticates itself.
    pub fn key_of(&self, host: &Nqn) -> Key {
        let parts = [host.as_str().as_bytes(), OF_KEYS];
        Key(self.transform.map_or(self.secret, |hash| mac(hash, &self.secret, &parts)))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.secret.len)
    }
}

/// The key of a host.
#[derive(Clone, Copy)]
pub struct Key(Digest);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len)
    }
}

/// The input of a response, beside the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The hash in the Challenge.
    pub hash: Hash,
    /// The challenge (C1).
    pub challenge: Digest,
    /// The number of the challenge (S1).
    pub sequence: u32,
    /// The transaction (T_ID).
    pub transaction: u16,
    /// The host, which authenticates itself.
    pub host: Nqn,
    /// The subsystem.
    pub subsystem: Nqn,
}

impl Key {
    /// Computes the host's response (R1), without a secure channel.
    pub fn respond(&self, claim: &Claim) -> Digest {
        claim.with_parts(|parts| mac(claim.hash, &self.0, parts))
    }

    /// Whether a response was made with this key. Takes constant time.
    pub fn verifies(&self, claim: &Claim, response: &Digest) -> bool {
        claim.with_parts(|parts| match claim.hash {
            Hash::Sha256 => check(fed::<Hmac<Sha256>>(&self.0, parts), response),
            Hash::Sha384 => check(fed::<Hmac<Sha384>>(&self.0, parts), response),
            Hash::Sha512 => check(fed::<Hmac<Sha512>>(&self.0, parts), response),
        })
    }
}

impl Claim {
    fn with_parts<T>(&self, then: impl FnOnce(&[&[u8]]) -> T) -> T {
        then(&[
            self.challenge.as_bytes(),
            &self.sequence.to_le_bytes(),
            &self.transaction.to_le_bytes(),
            // SC_C.
            &[0],
            b"HostHost",
            self.host.as_str().as_bytes(),
            &[0],
            self.subsystem.as_str().as_bytes(),
        ])
    }
}

/// Computes the HMAC of the parts. Never `None`: HMAC takes a key of any length.
fn fed<M: Mac + hmac::digest::KeyInit>(key: &Digest, parts: &[&[u8]]) -> Option<M> {
    let mut code = <M as Mac>::new_from_slice(key.as_bytes()).ok()?;
    parts.iter().for_each(|part| code.update(part));
    Some(code)
}

fn check<M: Mac>(code: Option<M>, response: &Digest) -> bool {
    code.is_some_and(|code| code.verify_slice(response.as_bytes()).is_ok())
}

fn mac(hash: Hash, key: &Digest, parts: &[&[u8]]) -> Digest {
    fn finish<M: Mac>(code: Option<M>) -> Option<Digest> {
        Digest::new(&code?.finalize().into_bytes())
    }
    let code = match hash {
        Hash::Sha256 => finish(fed::<Hmac<Sha256>>(key, parts)),
        Hash::Sha384 => finish(fed::<Hmac<Sha384>>(key, parts)),
        Hash::Sha512 => finish(fed::<Hmac<Sha512>>(key, parts)),
    };
    code.expect("HMAC takes a key of any length, and its codes are as long as digests")
}
