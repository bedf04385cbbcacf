//! Notices: no reader that listens as it should misses one, or sleeps through it.

use loom::sync::Arc;
use loom::thread;
use verbline_ring::{Notices, Wake, Word, doorbell};

type Hear = fn(&Notices<u32>, usize, &mut Vec<u32>) -> Word;

/// A reader like an lcore: empties the box whenever the word has changed.
struct Reader {
    index: usize,
    seen: Word,
    heard: Vec<u32>,
    hear: Hear,
}

impl Reader {
    fn new(index: usize, hear: Hear) -> Reader {
        Reader { index, seen: Word::FIRST, heard: Vec::new(), hear }
    }

    fn turn(&mut self, notices: &Notices<u32>) {
        if notices.word() != self.seen {
            let mut taken = Vec::new();
            self.seen = (self.hear)(notices, self.index, &mut taken);
            self.heard.append(&mut taken);
        }
    }
}

/// Two threads post one notice each, to a reader that takes two turns meanwhile and one afterwards.
fn all_are_heard(hear: Hear) {
    let notices = Arc::new(Notices::new(1, 2));
    let posters = [1, 2].map(|notice| {
        let notices = notices.clone();
        thread::spawn(move || notices.post([(0, notice)]))
    });
    let mut reader = Reader::new(0, hear);
    reader.turn(&notices);
    reader.turn(&notices);
    posters.map(|poster| poster.join().expect("a poster doesn't panic"));
    reader.turn(&notices);
    reader.heard.sort_unstable();
    assert_eq!(reader.heard, [1, 2], "a notice is lost");
    assert_eq!(notices.word(), reader.seen);
}

#[test]
fn every_notice_is_heard_once() {
    loom::model(|| all_are_heard(Notices::hear));
}

#[test]
fn who_sees_one_of_several_notices_finds_its_own() {
    loom::model(|| {
        let notices = Arc::new(Notices::new(2, 2));
        let poster = thread::spawn({
            let notices = notices.clone();
            move || notices.post([(0, 7), (1, 8)])
        });
        let mut readers = [Reader::new(0, Notices::hear), Reader::new(1, Notices::hear)];
        readers[0].turn(&notices);
        // Whatever the first reader does about its notice, the other one has its own by then.
        if readers[0].seen != Word::FIRST {
            readers[1].turn(&notices);
            assert_eq!((&readers[0].heard[..], &readers[1].heard[..]), (&[7][..], &[8][..]));
        }
        poster.join().expect("the poster doesn't panic");
    });
}

/// A phase and a notice come from two threads, each of which rings; the reader sleeps when there is
/// neither, until it has both.
#[test]
fn a_sleeper_is_woken_for_a_notice_and_for_a_phase() {
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(3);
    bounded.check(|| {
        let (waker, mut sleeper) = doorbell().expect("no errors under loom");
        let notices = Arc::new(Notices::new(1, 2));
        let spawn = |act: fn(&Notices<u32>)| {
            let (notices, waker) = (notices.clone(), waker.clone());
            thread::spawn(move || {
                act(&notices);
                waker.ring();
            })
        };
        let threads = [spawn(|notices| notices.post([(0, 7)])), spawn(|notices| notices.advance(1))];
        let mut reader = Reader::new(0, Notices::hear);
        while reader.heard.is_empty() || reader.seen.phase() == 0 {
            reader.turn(&notices);
            let armed = sleeper.arm();
            let done = !reader.heard.is_empty() && reader.seen.phase() == 1;
            let _: Wake = if done || notices.word() != reader.seen {
                sleeper.disarm(armed)
            } else {
                // Without a limit: a lost wake-up would never end.
                sleeper.wait(armed, None).expect("the event has no errors")
            };
        }
        threads.map(|thread| thread.join().expect("it doesn't panic"));
    });
}

// The mutant.

#[test]
#[should_panic(expected = "a notice is lost")]
fn mutant_that_empties_the_box_before_it_reads_the_word_loses_a_notice() {
    loom::model(|| all_are_heard(Notices::hear_box_first));
}
