//! A source that has finished, and is called again.

use super::*;

/// The source has finished, and may still be given operations back.
const ENDED: (bool, Polling) = (false, Polling::ENDED);

#[test]
fn a_source_that_is_done_ends_with_its_operations_and_is_not_polled_again() {
    let mut world = World::operating(true, &[Next::Done]);
    world.ask(1);
    world.look();
    assert_eq!(world.turn(), (IDLE, vec!["poll"]), "one is under way");
    world.process();
    assert_eq!(world.turn(), (IDLE, vec!["process"]));
    world.give_back();
    assert_eq!(world.turn(), (ENDED, vec!["operations"]));
    assert!(world.node.has_finished());
    assert_eq!(world.turn(), (ENDED, vec![]), "it costs nothing");
    // A stage that is not a source has nothing to end.
    let mut world = World::operating(false, &[Next::Done]);
    assert_eq!(world.turn(), (NEVER, vec!["poll"]));
}

#[test]
fn what_a_source_asks_for_once_it_has_finished_comes_back_and_it_finishes_once() {
    let mut world = World::operating(true, &[Next::Done]);
    world.seen.lock().unwrap().takes = true;
    assert_eq!(world.turn(), (ENDED, vec!["poll"]));
    assert!(world.node.has_finished());
    let calls: [(fn(&mut World), _); 3] =
        [(World::process, "process"), (World::hear, "port"), (|world| world.node.stop(&mut world.lcore), "stop")];
    for (call, name) in calls {
        world.ask(4);
        world.look();
        call(&mut world);
        assert_eq!(world.turn(), (IDLE, vec![name]), "they are under way");
        world.give_back();
        assert_eq!(world.turn(), (NEVER, vec!["operations"]));
        assert!(!world.node.has_finished(), "it has said so");
        assert_eq!(world.lcore.operations_at(PORT).unwrap().0.room(), 4);
    }
}
