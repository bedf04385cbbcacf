//! Checks in debug builds that no thread waits for one that may wait for it.
//!
//! The rule: a thread that others wait for waits only for the holder of a lock, which waits for
//! nobody in turn. Others wait for a thread that is inside a [`Guard`](crate::guard::Guard) or that
//! holds a [`SpinLock`](crate::lock::SpinLock). So
//! - locks are taken in the order of their [`Rank`], one of each rank at most: no two threads wait
//!   for each other's;
//! - a wait for threads inside guards ([`may_wait`]) never happens inside a guard, nor under a
//!   lock.
//!
//! Release builds don't check it, and loom finds deadlocks by running the code.

/// A lock's place in the order of locking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rank {
    /// Under it, a lock of rank [`Leaf`](Rank::Leaf) may be taken.
    Outer,
    /// Under it, no other lock is taken.
    #[default]
    Leaf,
}

/// To be called before waiting for threads that may be inside guards, or for a thread that waits
/// for them. `what` names the thing waited for.
///
/// # Panics
/// In debug builds, if this thread is inside a guard or holds a lock.
#[inline(always)]
pub fn may_wait(what: &str) {
    account::may_wait(what);
}

pub(crate) use account::{entered, left, locking, unlocked};

#[cfg(any(not(debug_assertions), loom))]
mod account {
    use super::Rank;

    #[inline(always)]
    pub(super) fn may_wait(_what: &str) {}
    #[inline(always)]
    pub(crate) fn entered() {}
    #[inline(always)]
    pub(crate) fn left() {}
    #[inline(always)]
    pub(crate) fn locking(_rank: Rank) {}
    #[inline(always)]
    pub(crate) fn unlocked(_rank: Rank) {}
}

#[cfg(all(debug_assertions, not(loom)))]
mod account {
    use super::Rank;
    use std::cell::Cell;

    /// The guards and locks that one thread holds.
    #[derive(Clone, Copy, Debug, Default)]
    struct Account {
        guards: u32,
        holds_outer: bool,
        holds_leaf: bool,
    }

    thread_local! {
        static ACCOUNT: Cell<Account> =
            const { Cell::new(Account { guards: 0, holds_outer: false, holds_leaf: false }) };
    }

    fn change(f: impl FnOnce(&mut Account)) {
        ACCOUNT.with(|cell| {
            let mut account = cell.get();
            f(&mut account);
            cell.set(account);
        });
    }

    #[track_caller]
    pub(super) fn may_wait(what: &str) {
        let Account { guards, holds_outer, holds_leaf } = ACCOUNT.get();
        // A thread that panics drops its objects wherever it is.
        let alone = guards == 0 && !holds_outer && !holds_leaf;
        assert!(
            alone || std::thread::panicking(),
            "{what} waits for threads inside guards, by a thread that is in {guards} guards and holds a lock: \
             {holds_outer} or {holds_leaf}"
        );
    }

    pub(crate) fn entered() {
        change(|account| account.guards += 1);
    }

    pub(crate) fn left() {
        change(|account| account.guards -= 1);
    }

    /// Called before waiting for the lock.
    #[track_caller]
    pub(crate) fn locking(rank: Rank) {
        change(|account| {
            let held = match rank {
                Rank::Outer => account.holds_outer || account.holds_leaf,
                Rank::Leaf => account.holds_leaf,
            };
            assert!(!held, "a lock of rank {rank:?} is taken under {account:?}");
            match rank {
                Rank::Outer => account.holds_outer = true,
                Rank::Leaf => account.holds_leaf = true,
            }
        });
    }

    pub(crate) fn unlocked(rank: Rank) {
        change(|account| match rank {
            Rank::Outer => account.holds_outer = false,
            Rank::Leaf => account.holds_leaf = false,
        });
    }
}

#[cfg(all(test, debug_assertions, not(loom)))]
mod tests {
    use super::*;
    use crate::guard::Guard;
    use crate::lock::SpinLock;

    #[test]
    fn locks_are_taken_in_their_order_and_again() {
        let (outer, leaf) = (SpinLock::of_rank(Rank::Outer, ()), SpinLock::new(()));
        for _ in 0..2 {
            let _outer = outer.lock();
            drop(leaf.lock());
            drop(leaf.lock());
        }
        drop(leaf.lock());
        may_wait("nothing");
    }

    #[test]
    #[should_panic(expected = "a lock of rank Outer is taken under")]
    fn a_lock_is_not_taken_under_one_that_comes_after_it() {
        let (outer, leaf) = (SpinLock::of_rank(Rank::Outer, ()), SpinLock::new(()));
        let _leaf = leaf.lock();
        drop(outer.lock());
    }

    #[test]
    #[should_panic(expected = "a lock of rank Leaf is taken under")]
    fn two_of_one_rank_are_not_taken_at_once() {
        let leaves = [SpinLock::new(()), SpinLock::new(())];
        let _one = leaves[0].lock();
        drop(leaves[1].lock());
    }

    #[test]
    #[should_panic(expected = "the control lock waits for threads inside guards")]
    fn who_is_inside_waits_for_nobody_who_waits_for_it() {
        let guard = Guard::new();
        let _inside = guard.enter();
        may_wait("the control lock");
    }
}
