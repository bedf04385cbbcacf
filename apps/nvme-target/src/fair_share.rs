//! A bounded resource that all queues of a port use. Each queue is guaranteed a share, and takes
//! more only from the spare part.
//!
//! The shares together never exceed the total, as checked when the stage is made. So a queue that
//! takes all it can get, for any time, leaves every other queue its share.

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Shares {
    /// Each queue's guaranteed share.
    each: u32,
    /// The rest of the spare part, which belongs to no queue.
    spare: u32,
}

impl Shares {
    /// Makes shares of `total` for `queues`: half of it is divided among them, but each gets at
    /// least `least`. `None` if `total` is too small for that.
    pub(crate) fn new(total: u32, queues: u32, least: u32) -> Option<Shares> {
        let each = (total / 2 / queues.max(1)).max(least);
        let spare = u64::from(total).checked_sub(u64::from(each) * u64::from(queues))?;
        Some(Shares { each, spare: spare as u32 })
    }

    fn beyond(&self, held: u32) -> u32 {
        held.saturating_sub(self.each)
    }

    /// Whether a queue that holds `held` may have `more`.
    #[inline]
    pub(crate) fn allows(&self, held: u32, more: u32) -> bool {
        self.beyond(held + more) - self.beyond(held) <= self.spare
    }

    /// Takes `more` for a queue, as [`allows`](Self::allows) permitted.
    #[inline]
    pub(crate) fn take(&mut self, held: &mut u32, more: u32) {
        self.spare = self.spare.saturating_sub(self.beyond(*held + more) - self.beyond(*held));
        *held += more;
    }

    /// Gives `less` back.
    #[inline]
    pub(crate) fn give_back(&mut self, held: &mut u32, less: u32) {
        let left = held.saturating_sub(less);
        self.spare += self.beyond(*held) - self.beyond(left);
        *held = left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_has_its_share_whatever_the_others_hold() {
        for (total, queues, least) in [(64, 8, 2), (17, 8, 2), (512, 64, 3), (16, 8, 2), (7, 1, 3)] {
            let mut shares = Shares::new(total, queues, least).expect("enough for all");
            let mut held = vec![0; queues as usize];
            // All queues but the last take all they can get.
            for own in &mut held[..queues as usize - 1] {
                while shares.allows(*own, 1) {
                    shares.take(own, 1);
                }
            }
            let last = held.len() - 1;
            assert!(shares.allows(held[last], least), "{total} {queues} {least}");
            shares.take(&mut held[last], least);
            assert!(held.iter().sum::<u32>() <= total);
            for own in &mut held {
                while *own > 0 {
                    shares.give_back(own, 1);
                }
            }
            assert_eq!(shares.each * queues + shares.spare, total, "all of it is back");
        }
        assert!(Shares::new(15, 8, 2).is_none(), "too little for all");
    }
}
