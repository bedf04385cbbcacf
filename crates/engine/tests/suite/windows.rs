//! Memory windows: keys to a part of a region, lent to a peer and taken back by either side.

use crate::common::{OUT, assert_clean};
use crate::operation_kinds::{Side, key_in, packet, play, play_on, text};
use verbline_engine::{
    Done, EngineError, KeptWindow, Operation, OperationError, Outputs, Region, Remote, Rights, Status, invalidated_key,
};
use verbline_mem::Packet;

/// Gives a key to a part of its region, takes it back by itself, gives another, and lets the peer
/// give that back.
struct Lends {
    taken_back: bool,
}

impl Lends {
    fn lend(&self, window: u16, region: &Region, out: &mut Outputs<'_>) {
        let part = region.part(64, 64).unwrap();
        let rights = Rights::REMOTE_READ | Rights::REMOTE_WRITE;
        out.operate(OUT, Operation::bind(KeptWindow(window), part, rights).tag(window.into())).unwrap();
    }
}

impl Side for Lends {
    fn begin(&mut self, region: &Region, out: &mut Outputs<'_>) {
        region.store_u64(64, 4711).unwrap();
        self.lend(0, region, out);
    }

    fn took(&mut self, came: Packet, region: &Region, out: &mut Outputs<'_>) -> bool {
        if let Some(rkey) = invalidated_key(&came) {
            assert!(self.taken_back && rkey != 0);
            return true;
        }
        let key = key_in(&came);
        assert_eq!(region.load_u64(64).unwrap(), 4712, "written by the key");
        out.operate(OUT, Operation::invalidate(key.rkey).tag(9)).unwrap();
        false
    }

    fn done(&mut self, done: Done, region: &Region, out: &mut Outputs<'_>) -> bool {
        assert_eq!(done.result, Ok(()), "{done:?}");
        match done.tag {
            9 => {
                self.taken_back = true;
                self.lend(1, region, out);
            }
            _ => {
                let key = packet(out, &done.key.expect("of a bind").to_bytes());
                assert!(out.send(OUT, key));
            }
        }
        false
    }
}

/// Uses the first key and gives it back in a message; gives the second back by the SEND itself.
#[derive(Default)]
struct Borrows {
    keys: Vec<Remote>,
}

impl Side for Borrows {
    fn begin(&mut self, _: &Region, _: &mut Outputs<'_>) {}

    fn took(&mut self, came: Packet, region: &Region, out: &mut Outputs<'_>) -> bool {
        let key = key_in(&came);
        self.keys.push(key);
        let range = region.part(0, 8).unwrap();
        match self.keys.len() {
            1 => out.operate(OUT, Operation::read(range, key).tag(1)).unwrap(),
            _ => {
                assert_ne!(self.keys[0].rkey, key.rkey);
                let back = packet(out, b"back");
                out.operate(OUT, Operation::send_with_invalidate(back, key.rkey).tag(3)).unwrap();
            }
        }
        false
    }

    fn done(&mut self, done: Done, region: &Region, out: &mut Outputs<'_>) -> bool {
        assert_eq!(done.result, Ok(()), "{done:?}");
        let key = self.keys[0];
        match done.tag {
            1 => {
                assert_eq!(region.load_u64(0).unwrap(), 4711);
                region.store_u64(0, 4712).unwrap();
                let told = packet(out, &key.to_bytes());
                out.operate(OUT, Operation::write(region.part(0, 8).unwrap(), key).tag(2)).unwrap();
                assert!(out.send(OUT, told));
            }
            tag => return tag == 3,
        }
        false
    }
}

#[test]
fn a_key_to_a_part_is_given_used_and_taken_back_by_either_side() {
    let report = play(Borrows::default(), Lends { taken_back: false }).unwrap();
    assert_clean(&report);
    let kinds = &report.port("far").unwrap().operations.as_ref().unwrap().kinds;
    let counts: Vec<_> = kinds.iter().map(|kind| (kind.kind, kind.completed)).collect();
    assert_eq!(counts, [("bind", 2), ("invalidate", 1)]);
}

/// Regression: the ports let no requests in, so that the first READ took both of them down.
#[test]
fn windows_open_a_region_whose_own_key_opens_nothing() {
    let text = text().replace("\"remote-read\", \"remote-write\", \"remote-atomic\", ", "");
    assert!(!text.contains("remote-"), "{text}");
    let report = play_on(&text, Borrows::default(), Lends { taken_back: false }).unwrap();
    assert_clean(&report);
    let near = report.port("near").unwrap().operations.as_ref().unwrap();
    let counts: Vec<_> = near.kinds.iter().map(|kind| (kind.kind, kind.completed, kind.failed)).collect();
    assert_eq!(counts, [("send", 1, 0), ("write", 1, 0), ("read", 1, 0)]);
}

/// Uses a key after it was given back.
struct Cheats(Borrows);

impl Side for Cheats {
    fn begin(&mut self, _: &Region, _: &mut Outputs<'_>) {}

    fn took(&mut self, came: Packet, region: &Region, out: &mut Outputs<'_>) -> bool {
        if self.0.keys.is_empty() {
            return self.0.took(came, region, out);
        }
        let old = self.0.keys[0];
        out.operate(OUT, Operation::read(region.part(0, 8).unwrap(), old).tag(5)).unwrap();
        false
    }

    fn done(&mut self, done: Done, region: &Region, out: &mut Outputs<'_>) -> bool {
        if done.tag == 5 {
            assert_eq!(done.result, Err(OperationError::Status(Status::REM_ACCESS_ERR)));
            return true;
        }
        self.0.done(done, region, out)
    }
}

#[test]
fn a_key_that_was_taken_back_opens_nothing() {
    let error = play(Cheats(Borrows::default()), Lends { taken_back: false }).unwrap_err();
    let EngineError::Failed { report, .. } = error else { panic!("{error}") };
    assert_eq!(report.stage("near").unwrap().counter("ended"), Some(1), "it was told");
    assert_eq!(report.packets.held, 0);
}

/// Binds a window behind a READ by a key that opens nothing.
struct Rushes;

impl Side for Rushes {
    fn begin(&mut self, region: &Region, out: &mut Outputs<'_>) {
        let part = || region.part(0, 8).unwrap();
        let read = Operation::read(part(), Remote { addr: 0, rkey: 0 }).tag(1);
        out.operate_all(OUT, [read, Operation::bind(KeptWindow(0), part(), Rights::REMOTE_READ).tag(2)]).unwrap();
    }

    fn took(&mut self, _: Packet, _: &Region, _: &mut Outputs<'_>) -> bool {
        false
    }

    fn done(&mut self, done: Done, _: &Region, _: &mut Outputs<'_>) -> bool {
        let status = [Status::REM_ACCESS_ERR, Status::WR_FLUSH_ERR][done.tag as usize - 1];
        assert_eq!((done.result, done.key), (Err(OperationError::Status(status)), None));
        done.tag == 2
    }
}

#[test]
fn a_bind_that_fails_gives_no_key() {
    let error = play(Cheats(Borrows::default()), Rushes).unwrap_err();
    let EngineError::Failed { report, .. } = error else { panic!("{error}") };
    assert_eq!(report.stage("far").unwrap().counter("ended"), Some(1), "it was told");
}
