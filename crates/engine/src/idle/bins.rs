//! The bins of the histogram of gaps: their lengths, and the statistics of each.

/// Bins for each doubling of the gap.
const PER_OCTAVE: u64 = 8;
/// Gaps below 8 ns share the first bins; gaps above 2^35 ns, 34 s, the last.
pub(super) const BINS: usize = 264;
/// Parts of a bin.
pub(super) const PARTS: usize = 8;
/// The number of gaps from which on a bin is examined part by part.
pub(super) const MANY: u32 = 64;

/// Recorded gaps of about one length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bin {
    pub(super) weight: u32,
    /// The lengths since the weights were last halved, and those before that.
    seen: Seen,
    seen_before: Seen,
    /// The number of gaps in each part, in the order of their lengths.
    parts: [u16; PARTS],
}

/// The range of recorded gaps.
#[derive(Clone, Copy, Debug)]
struct Seen {
    least_ns: u64,
    greatest_ns: u64,
    /// The most by which a gap may have been shorter than recorded.
    doubt_ns: u64,
}

impl Seen {
    const NEVER: Seen = Seen { least_ns: u64::MAX, greatest_ns: 0, doubt_ns: 0 };

    fn and(self, other: Seen) -> Seen {
        Seen {
            least_ns: self.least_ns.min(other.least_ns),
            greatest_ns: self.greatest_ns.max(other.greatest_ns),
            doubt_ns: self.doubt_ns.max(other.doubt_ns),
        }
    }
}

impl Bin {
    pub(super) const EMPTY: Bin = Bin { weight: 0, seen: Seen::NEVER, seen_before: Seen::NEVER, parts: [0; PARTS] };

    /// Adds a gap of this bin, which may have been shorter by `doubt_ns`.
    pub(super) fn add(&mut self, gap_ns: u64, doubt_ns: u64) {
        let index = bin_of(gap_ns);
        let part = gap_ns.saturating_sub(start_of(index)) * PARTS as u64 / width_of(index);
        self.parts[part.min(PARTS as u64 - 1) as usize] += 1;
        self.weight += 1;
        self.seen = self.seen.and(Seen { least_ns: gap_ns, greatest_ns: gap_ns, doubt_ns });
    }

    /// Halves the weights. A part with a single gap forgets it.
    pub(super) fn age(&mut self) {
        self.weight /= 2;
        if self.weight == 0 {
            *self = Bin::EMPTY;
            return;
        }
        self.parts.iter_mut().for_each(|gaps| *gaps /= 2);
        if self.seen.least_ns != Seen::NEVER.least_ns {
            self.seen_before = std::mem::replace(&mut self.seen, Seen::NEVER);
        }
    }

    /// Returns the bin's gaps in pieces, the shortest first; `index` is the bin's own.
    pub(super) fn pieces(&self, index: usize) -> impl Iterator<Item = Piece> {
        let Seen { least_ns, greatest_ns, doubt_ns } = self.seen.and(self.seen_before);
        let (known, width_ns) = (self.parts.iter().copied().map(u32::from).sum::<u32>(), width_of(index));
        let is_split = self.weight >= MANY && known >= MANY / 2 && width_ns >= PARTS as u64;
        let all = Piece { weight: self.weight, least_ns: least_ns.saturating_sub(doubt_ns), greatest_ns, width_ns };
        let parts = self.parts.into_iter().enumerate().filter(move |(_, gaps)| is_split && *gaps > 0);
        let parts = parts.map(move |(part, gaps)| {
            let width_ns = width_ns / PARTS as u64;
            let from_ns = start_of(index) + part as u64 * width_ns;
            let to_ns = from_ns + width_ns;
            // A part may have been filled before the recent range was seen.
            let least_ns = if (from_ns..to_ns).contains(&least_ns) { least_ns } else { from_ns };
            let greatest_ns = if (least_ns..to_ns).contains(&greatest_ns) { greatest_ns } else { to_ns };
            let weight = (all.weight * u32::from(gaps) / known).max(1);
            Piece { weight, least_ns: least_ns.saturating_sub(doubt_ns), greatest_ns, width_ns }
        });
        (!is_split).then_some(all).into_iter().chain(parts)
    }
}

/// Gaps of a bin that lie together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) weight: u32,
    pub(super) least_ns: u64,
    pub(super) greatest_ns: u64,
    /// The width of the bin, or of the part.
    pub(super) width_ns: u64,
}

/// Returns the bin of a gap.
pub(super) fn bin_of(gap_ns: u64) -> usize {
    if gap_ns < PER_OCTAVE {
        return gap_ns as usize;
    }
    let octave = u64::from(gap_ns.ilog2() - PER_OCTAVE.ilog2());
    let within = (gap_ns >> octave) & (PER_OCTAVE - 1);
    ((octave + 1) * PER_OCTAVE + within).min(BINS as u64 - 1) as usize
}

/// Returns the shortest gap of a bin.
fn start_of(bin: usize) -> u64 {
    match bin as u64 {
        bin @ 0..PER_OCTAVE => bin,
        bin => (PER_OCTAVE + bin % PER_OCTAVE) << (bin / PER_OCTAVE - 1),
    }
}

fn width_of(bin: usize) -> u64 {
    1 << (bin as u64 / PER_OCTAVE).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_in_a_bin_as_wide_as_an_eighth_of_it_at_most() {
        for gap_ns in (0..4096).chain((12..35).flat_map(|octave| [(1 << octave) - 1, 1 << octave, (1 << octave) + 1])) {
            let bin = bin_of(gap_ns);
            assert!(width_of(bin) <= (gap_ns / PER_OCTAVE).max(1), "{gap_ns}: {bin}");
            assert!(bin_of(gap_ns + 1) - bin <= 1, "{gap_ns}: bins follow one another");
            assert!((start_of(bin)..start_of(bin) + width_of(bin)).contains(&gap_ns), "{gap_ns}: {bin}");
        }
        assert_eq!(bin_of(u64::MAX), BINS - 1);
    }

    #[test]
    fn a_bin_of_many_gaps_is_told_part_by_part_and_forgets_what_is_rare() {
        let (start, width) = (start_of(140), width_of(140));
        let mut bin = Bin::EMPTY;
        (0..200).for_each(|_| bin.add(start + width / 2 + 1, 0));
        bin.add(start, 0);
        let pieces: Vec<_> = bin.pieces(140).map(|piece| (piece.weight, piece.least_ns, piece.greatest_ns)).collect();
        let part = width / PARTS as u64;
        assert_eq!(pieces, [(1, start, start + part), (200, start + width / 2, start + width / 2 + 1)]);
        bin.age();
        let pieces: Vec<_> = bin.pieces(140).map(|piece| (piece.weight, piece.least_ns)).collect();
        assert_eq!(pieces, [(100, start + width / 2)]);
    }
}
