//! The layout of a key: the parts of regions that it stands for.

use rdma_sys::ibv_sge;
use verbline_softnic::mlx5dv::mlx5dv_mr_interleaved;

use crate::memory::peer::PeerSlice;

/// A part of a layout with gaps.
#[derive(Clone, Debug)]
pub struct Strip {
    /// The part of the first round. Later rounds lie behind it.
    pub first: PeerSlice,
    /// Bytes between one round's part and the next.
    pub skip_bytes: u32,
}

/// The memory of a key: parts of regions, one after the other. The layout keeps them registered.
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

    /// The strips, one after the other, repeated `repeat` times: for example, data and protection
    /// information that lies elsewhere. It takes one entry of the key more than there are strips.
    pub fn interleaved(repeat: u32, strips: impl IntoIterator<Item = Strip>) -> KeyLayout {
        KeyLayout { kind: Kind::Interleaved(repeat, strips.into_iter().collect()) }
    }

    /// The number of key entries that it takes.
    pub fn entries(&self) -> usize {
        match &self.kind {
            Kind::List(slices) => slices.len(),
            Kind::Interleaved(_, strips) => strips.len() + 1,
        }
    }

    /// The PD of a part that belongs to another PD than this one.
    pub(crate) fn foreign_pd(&self, pd_id: u64) -> Option<u64> {
        let foreign = |slice: &PeerSlice| Some(slice.pd_id()).filter(|&theirs| theirs != pd_id);
        match &self.kind {
            Kind::List(slices) => slices.iter().find_map(foreign),
            Kind::Interleaved(_, strips) => strips.iter().find_map(|strip| foreign(&strip.first)),
        }
    }

    /// The parts in the form for a device.
    pub(super) fn parts(&self) -> Parts<impl Iterator<Item = ibv_sge>, impl Iterator<Item = mlx5dv_mr_interleaved>> {
        match &self.kind {
            // Empty slices are left out: a length of 0 would mean 2^31.
            Kind::List(slices) => Parts::List(slices.iter().filter(|slice| !slice.is_empty()).map(PeerSlice::sge)),
            Kind::Interleaved(repeat, strips) => Parts::Interleaved(*repeat, strips.iter().map(strip)),
        }
    }
}

/// The parts of a layout: a list, or strips with their repeat count.
pub(super) enum Parts<List, Strips> {
    List(List),
    Interleaved(u32, Strips),
}

fn strip(strip: &Strip) -> mlx5dv_mr_interleaved {
    mlx5dv_mr_interleaved {
        addr: strip.first.addr(),
        bytes_count: strip.first.len(),
        bytes_skip: strip.skip_bytes,
        lkey: strip.first.lkey(),
    }
}
