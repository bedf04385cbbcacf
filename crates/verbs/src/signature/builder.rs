//! Builds work requests that configure a key, in the form that the key's device takes: words for
//! the software RNIC, calls when posting for a card.

use rdma_sys::ibv_sge;
use verbline_softnic::mlx5dv::{MkeyConfigureWr, mkey_conf_flags, mlx5dv_mkey, mlx5dv_mkey_conf_attr};

use crate::block_signature::BlockSignature;
use crate::device::offload::Offload;
use crate::mlx5::card::Card;
use crate::mlx5::configuration::Configuration;
use crate::signature::layout::{KeyLayout, Parts};

/// Builder of a key's configurations.
#[derive(Debug)]
pub(super) enum Builder {
    Soft(MkeyConfigureWr),
    Mlx5(CardBuilder),
}

/// The builder for a card.
#[derive(Debug)]
pub(super) struct CardBuilder {
    card: Card,
    configuration: Box<Configuration>,
    /// The device refused to change the signature, so its current value is unknown
    /// (`mlx5dv_wr_set_mkey_sig_block(3)`, notes).
    is_unknown: bool,
}

/// The requested changes.
pub(super) struct Asked<'a> {
    pub(super) access: Option<u32>,
    pub(super) layout: Option<Place<'a>>,
    pub(super) signature: Change,
}

/// The memory that a key is to stand for.
pub(super) enum Place<'a> {
    Layout(&'a KeyLayout),
    Part(ibv_sge),
}

/// The change of a key's signature.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Change {
    #[default]
    Keep,
    Reset,
    Set(BlockSignature),
}

impl Builder {
    /// A builder for keys of `entries` entries.
    pub(super) fn new(offload: Offload, entries: u16) -> Builder {
        match offload {
            Offload::Soft => Builder::Soft(MkeyConfigureWr::with_capacity(entries.into())),
            Offload::Mlx5(card) => {
                let configuration = Configuration::with_capacity(entries.into());
                Builder::Mlx5(CardBuilder { card, configuration, is_unknown: false })
            }
        }
    }

    /// The inline data, or the reason why it cannot be built. The next call overwrites it.
    pub(super) fn build(&mut self, mkey: *mut mlx5dv_mkey, asked: &Asked<'_>) -> Result<ibv_sge, &'static str> {
        match self {
            Builder::Soft(wr) => build_words(wr, mkey, asked),
            Builder::Mlx5(card) => card.build(mkey, asked),
        }
    }

    /// Called when the last built configuration was not posted.
    pub(super) fn refused(&mut self) {
        if let Builder::Mlx5(card) = self {
            card.is_unknown |= card.configuration.changes_signature();
        }
    }
}

fn build_words(wr: &mut MkeyConfigureWr, mkey: *mut mlx5dv_mkey, asked: &Asked<'_>) -> Result<ibv_sge, &'static str> {
    let Asked { access, layout, signature } = asked;
    let signs = matches!(signature, Change::Set(_));
    let setters = u8::from(access.is_some()) + u8::from(layout.is_some()) + u8::from(signs);
    let conf_flags = if matches!(signature, Change::Reset) { mkey_conf_flags::RESET_SIG_ATTR } else { 0 };
    wr.start(mkey, setters, &mlx5dv_mkey_conf_attr { conf_flags, comp_mask: 0 });
    if let Some(access) = access {
        wr.set_access_flags(*access);
    }
    match layout {
        None => {}
        Some(Place::Part(part)) => wr.set_layout_list([*part]),
        Some(Place::Layout(layout)) => match layout.parts() {
            Parts::List(sges) => wr.set_layout_list(sges),
            Parts::Interleaved(repeat, strips) => wr.set_layout_interleaved(repeat, strips),
        },
    }
    if let Change::Set(signature) = signature {
        signature.with_raw(|attr| {
            // SAFETY: the memory behind the attributes is borrowed during the call.
            unsafe { wr.set_sig_block(attr) }
        });
    }
    let words = wr.complete().map_err(|_| "its values don't go together")?;
    Ok(ibv_sge { addr: words.as_ptr() as u64, length: size_of_val(words) as u32, lkey: 0 })
}

impl CardBuilder {
    fn build(&mut self, mkey: *mut mlx5dv_mkey, asked: &Asked<'_>) -> Result<ibv_sge, &'static str> {
        let Asked { access, layout, signature } = asked;
        let configuration = &mut *self.configuration;
        configuration.start(mkey);
        if let Some(access) = access {
            configuration.set_access(*access);
        }
        match layout {
            None => {}
            Some(Place::Part(part)) => configuration.set_list([*part]),
            Some(Place::Layout(layout)) => match layout.parts() {
                Parts::List(sges) => configuration.set_list(sges),
                Parts::Interleaved(repeat, strips) => configuration.set_interleaved(repeat, strips),
            },
        }
        match signature {
            Change::Keep if self.is_unknown => {
                return Err(
                    "the device refused its last signature: say again what blocks carry, or that they carry nothing",
                );
            }
            Change::Keep => {}
            Change::Reset => configuration.reset_signature(),
            Change::Set(signature) => configuration.set_signature(*signature),
        }
        let lacks = match signature {
            Change::Set(signature) => self.card.lacks(signature),
            Change::Keep | Change::Reset => None,
        };
        if let Some(says) = configuration.misunderstood().or(lacks) {
            return Err(says);
        }
        self.is_unknown = false;
        Ok(configuration.inline())
    }
}
