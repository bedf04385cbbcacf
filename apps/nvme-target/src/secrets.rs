//! The secrets of hosts, as the plan names their files.

use verbline::plan::Params;
use verbline::prelude::*;

use crate::exchange::Known;
use crate::settings::{Settings, name};

/// Reads the secrets of the hosts that have one.
pub(crate) fn read_secrets(settings: &Settings, section: &Params) -> Result<Vec<Known>, StageError> {
    let mut known = Vec::with_capacity(settings.secrets.len());
    for (host, path) in &settings.secrets {
        let secret = nvme_load::read_secret(path)
            .map_err(|error| section.refuse("secrets", format!("the secret of {host}: {error}")))?;
        let host = name(host);
        known.push(Known { host, key: secret.key_of(&host) });
    }
    Ok(known)
}
