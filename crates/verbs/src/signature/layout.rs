//! Where the bytes of a key are.

use rdma_sys::ibv_sge;
use verbline_softnic::mlx5dv::{MkeyConfigureWr, mlx5dv_mr_interleaved};

use crate::memory::peer::PeerSlice;

/// A part of a layout with gaps.
#[derive(Clone, Debug)]
pub struct Strip {
    /// What the first round uses. Later rounds lie behind it.
    pub first: PeerSlice,
    /// Bytes between one round's and the next.
    pub skip_bytes: u32,
}

/// What a key stands for: parts of regions, one after the other. It keeps them registered.
#[derive(Clone, Debug)]
pub struct KeyLayout {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    List(Vec<PeerSlice>),
    Interleaved(u32, Vec<Strip>),
}

impl KeyLayout {
    /// The slices, one after the other.
    pub fn list(slices: impl IntoIterator<Item = PeerSlice>) -> KeyLayout {
        KeyLayout { kind: Kind::List(slices.into_iter().collect()) }
    }

    /// The strips, one after the other, gone through `repeat` times: data and the protection
    /// information that lies elsewhere, for one. It takes an entry of the key more than there are
    /// strips.
    pub fn interleaved(repeat: u32, strips: impl IntoIterator<Item = Strip>) -> KeyLayout {
        KeyLayout { kind: Kind::Interleaved(repeat, strips.into_iter().collect()) }
    }

    /// Entries of the key that it takes.
    pub fn entries(&self) -> usize {
        match &self.kind {
            Kind::List(slices) => slices.len(),
            Kind::Interleaved(_, strips) => strips.len() + 1,
        }
    }

    /// A PD other than this one that some of it belongs to.
    pub(crate) fn foreign_pd(&self, pd_id: u64) -> Option<u64> {
        let foreign = |slice: &PeerSlice| Some(slice.pd_id()).filter(|&theirs| theirs != pd_id);
        match &self.kind {
            Kind::List(slices) => slices.iter().find_map(foreign),
            Kind::Interleaved(_, strips) => strips.iter().find_map(|strip| foreign(&strip.first)),
        }
    }

    pub(super) fn write(&self, wr: &mut MkeyConfigureWr) {
        match &self.kind {
            // Of a slice without bytes nothing is used: a length of 0 would be 2^31.
            Kind::List(slices) => wr.set_layout_list(slices.iter().filter(|slice| !slice.is_empty()).map(sge)),
            Kind::Interleaved(repeat, strips) => wr.set_layout_interleaved(*repeat, strips.iter().map(strip)),
        }
    }
}

fn sge(slice: &PeerSlice) -> ibv_sge {
    slice.sge()
}

fn strip(strip: &Strip) -> mlx5dv_mr_interleaved {
    mlx5dv_mr_interleaved {
        addr: strip.first.addr(),
        bytes_count: strip.first.len(),
        bytes_skip: strip.skip_bytes,
        lkey: strip.first.lkey(),
    }
}
