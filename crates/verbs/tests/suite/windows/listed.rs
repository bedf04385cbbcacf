//! Binds of a window that a queue pair keeps, posted in lists of work requests.

use verbline_verbs::rdma::{KeepSpec, KeptRegion, KeptWindow, Local, Operation, Part, Span, Work, WorkList};

use super::*;

const WINDOW: KeptWindow = KeptWindow(0);
const BYTES: u64 = 64;

/// A listed work request of the window's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A bind to a region that allows windows.
    Bind,
    /// A bind to one that does not.
    Refused,
    /// Unbinds the window.
    Invalidate,
    /// A WRITE without bytes.
    Write,
}

const KINDS: [Kind; 4] = [Kind::Bind, Kind::Refused, Kind::Invalidate, Kind::Write];

/// The window, as the device should see it.
struct Oracle {
    /// The address that `offset` 0 of the open region has.
    addr: u64,
    /// The key of the first bind; the low 8 bits count up with each posted bind.
    first_key: u32,
    binds: u32,
    bound: Option<Remote>,
    is_failed: bool,
}

impl Oracle {
    fn key(&self) -> u32 {
        self.first_key & !0xff | self.first_key.wrapping_add(self.binds - 1) & 0xff
    }

    /// The next work request, with the status that it should have.
    fn work(&mut self, kind: Kind, offset: u64, there: Remote) -> (Work, Status) {
        let part = |region| Part { region: KeptRegion(region), span: Span::new(offset, BYTES).unwrap() };
        let bind = |region| Operation::Bind { window: WINDOW, part: part(region), access: Access::REMOTE_WRITE };
        let before = self.bound;
        let (operation, is_good) = match kind {
            Kind::Bind | Kind::Refused => {
                self.binds += 1;
                let is_good = kind == Kind::Bind && before.is_none();
                if is_good && !self.is_failed {
                    self.bound = Some(Remote { addr: self.addr + offset, rkey: self.key() });
                }
                (bind(u16::from(kind == Kind::Refused)), is_good)
            }
            Kind::Invalidate => {
                if !self.is_failed {
                    self.bound = None;
                }
                // An unbound window gets a key that it never had.
                let rkey = before.map_or(self.key().wrapping_add(100), |remote| remote.rkey);
                (Operation::LocalInvalidate { rkey }, before.is_some())
            }
            Kind::Write => (Operation::write(Local::Empty, there), true),
        };
        let status = match (self.is_failed, is_good) {
            (true, _) => Status::WR_FLUSH_ERR,
            (false, true) => Status::SUCCESS,
            (false, false) => Status::MW_BIND_ERR,
        };
        self.is_failed |= !is_good;
        (Work::plain(operation), status)
    }
}

/// Posts these as one list; returns their statuses, and those that they should have.
fn post(b: &mut Side, a: &mut Side, oracle: &mut Oracle, kinds: &[Kind], there: Remote) -> (Vec<Status>, Vec<Status>) {
    let (mut works, mut expected) = (WorkList::with_capacity(kinds.len()), Vec::new());
    for (at, kind) in (0..).zip(kinds) {
        let (work, status) = oracle.work(*kind, at * BYTES, there);
        works.push(work).unwrap();
        expected.push(status);
    }
    let outcome = b.qp.post_works(&mut works);
    assert_eq!((outcome.posted, outcome.stop), (kinds.len(), None), "{kinds:?}");
    let (mut ends, deadline) = (Vec::new(), std::time::Instant::now() + PATIENCE);
    while ends.len() < kinds.len() {
        assert!(std::time::Instant::now() < deadline, "the work requests of {kinds:?} complete");
        a.poll(hand_back);
        b.poll(|qp, freed, completion| {
            let each = |count, _, own| {
                let status = if own { completion.status() } else { Status::SUCCESS };
                ends.extend(std::iter::repeat_n(status, count as usize));
            };
            let _ = qp.works_done(completion, freed, each).unwrap();
        });
    }
    (ends, expected)
}

/// After every list of up to three, on a window that is bound or not, the peer reaches the memory
/// of the last bind that was carried out, and further binds work, whichever work request failed.
#[test]
fn a_window_follows_its_listed_binds_up_to_the_one_that_fails() {
    only_soft!("of kernel devices, not all can invalidate in the list of a bind");
    let options = Options::new(Transport::Rc);
    let (mut a, mut b) = pair(&options);
    let (open, closed) = (b.peer_region(4096, bindable()), b.peer_region(4096, Access::LOCAL_WRITE));
    let there = a.peer_region(64, options.access | Access::LOCAL_WRITE).remote(0);
    let addr = open.remote(0).addr;
    b.qp.keep_memory(&KeepSpec { regions: vec![Some(open), Some(closed)], windows: 1, keys: 0 }).unwrap();
    let mut oracle = Oracle { addr, first_key: 0, binds: 0, bound: None, is_failed: false };
    let (statuses, expected) = post(&mut b, &mut a, &mut oracle, &[Kind::Bind], there);
    assert_eq!(statuses, expected);
    oracle.first_key = b.qp.window_remote(WINDOW).unwrap().rkey;
    oracle.bound = b.qp.window_remote(WINDOW);
    let lists = (1..=3).flat_map(|len| (0..KINDS.len().pow(len)).map(move |number| (len, number)));
    for (is_bound, (len, number)) in lists.flat_map(|list| [(false, list), (true, list)]) {
        let kinds: Vec<_> = (0..len).map(|at| KINDS[number / KINDS.len().pow(at) % KINDS.len()]).collect();
        let what = format!("{kinds:?} on a window that is bound: {is_bound}");
        if oracle.bound.is_some() != is_bound {
            let kind = if is_bound { Kind::Bind } else { Kind::Invalidate };
            let (statuses, expected) = post(&mut b, &mut a, &mut oracle, &[kind], there);
            assert_eq!(statuses, expected, "before {what}");
        }
        let (statuses, expected) = post(&mut b, &mut a, &mut oracle, &kinds, there);
        assert_eq!(statuses, expected, "{what}");
        if std::mem::take(&mut oracle.is_failed) {
            restart(&mut a, &mut b, &options);
        }
        if let Some(remote) = oracle.bound {
            assert_eq!(write(&mut a, &mut b, remote, b"through the window"), Status::SUCCESS, "{what}");
        }
    }
}
