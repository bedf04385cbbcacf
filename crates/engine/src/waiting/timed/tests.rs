//! What a stage with timers hears of beside them.

use std::collections::VecDeque;
use std::sync::Mutex;

use verbline_mem::ConnectionId;

use super::*;
use crate::api::connection::ConnectionChange;
use crate::api::stage::PortChange;
use crate::rig::Rig;
use crate::stats::count::shared;
use crate::stats::counters::StageStats;

type Calls = Arc<Mutex<Vec<&'static str>>>;
/// A call of the stage.
type Call<'a> = &'a dyn Fn(&mut Timed, &mut Outputs<'_>);

/// Notes what it is called for, and wants no polls of its own.
struct Told(Calls);

impl Told {
    fn note(&self, call: &'static str) {
        self.0.lock().unwrap().push(call);
    }
}

impl Stage for Told {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        self.note("process");
        input.clear();
    }

    fn poll(&mut self, _: &mut Outputs<'_>) -> Next {
        self.note("poll");
        Next::At(u64::MAX)
    }

    fn operations(&mut self, _: &mut Completed<'_>, _: &mut Outputs<'_>) {
        self.note("operations");
    }

    fn stop(&mut self, _: &mut Outputs<'_>) {
        self.note("stop");
    }

    fn port_event(&mut self, _: PortEvent, _: &mut Outputs<'_>) {
        self.note("port");
    }

    fn connection_event(&mut self, _: ConnectionEvent, _: &mut Outputs<'_>) {
        self.note("connection");
    }
}

#[test]
fn a_stage_with_timers_hears_of_all_that_others_hear_of_and_is_polled_after_it() {
    let (rig, stats, calls) = (Rig::new(1), shared::<StageStats>(), Calls::default());
    let mut state = rig.lcore_state(Vec::new(), 0);
    let mut out = Outputs { links: &[], stats: &stats, lcore: &mut state, cache: 0, timers: None, sent: 0 };
    let (mut stage, _) = Timed::new(Guarded::new("stage", Box::new(Told(Arc::clone(&calls)))), false, 4, 4);
    let said = || std::mem::take(&mut *calls.lock().unwrap());
    stage.poll(&mut out);
    stage.poll(&mut out);
    assert_eq!(said(), ["poll"], "it wants no more");
    let connection = ConnectionId::new(0, 0, 1).unwrap();
    let opened = ConnectionEvent { port: 0, connection, change: ConnectionChange::Opened };
    let down = PortEvent { port: 0, change: PortChange::Down };
    let hear: [(&str, Call<'_>); 5] = [
        ("process", &|stage, out| stage.process(&mut Batch::with_capacity(1), out)),
        ("port", &|stage, out| stage.port_event(down, out)),
        ("connection", &|stage, out| stage.connection_event(opened, out)),
        ("operations", &|stage, out| stage.operations(&mut Completed { done: &mut VecDeque::new() }, out)),
        ("stop", &|stage, out| stage.stop(out)),
    ];
    for (word, call) in hear {
        call(&mut stage, &mut out);
        stage.poll(&mut out);
        assert_eq!(said(), [word, "poll"]);
    }
}
