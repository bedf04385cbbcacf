//! Ends the cm thread of a port: it accepts no more connections, and drops the app's values.

use std::os::fd::AsFd;

use rustix::event::epoll;

use super::{CmThread, CmThreadRole};
use crate::errors::guarded::Guarded;
use crate::stats::report::FailureReport;

impl CmThread {
    /// Drops the app's values, while this thread is still waited for.
    pub(super) fn let_go(&mut self) {
        if let Some(Err(sentence)) = self.spec.acceptor.take().map(|acceptor| acceptor.leave()) {
            self.fail(sentence);
        }
        if let CmThreadRole::Connect { data, .. } = &mut self.spec.role
            && let Some(said) = data.take().and_then(Guarded::let_go)
        {
            let name = &self.spec.port.name;
            self.fail(format!("the request data of port.{name} panicked as it was dropped: {said}"));
        }
    }

    /// Accepts no more connections; later requests are refused, since no listener is left.
    pub(super) fn stop_taking(&mut self) {
        if std::mem::take(&mut self.is_taking) {
            // It was added, and is open: this cannot fail.
            let _ = epoll::delete(&self.epoll, self.stop.connecting.as_fd());
            if let CmThreadRole::Listen { listener, .. } = &mut self.spec.role {
                *listener = None;
            }
            if let Some(accept_queue) = &self.spec.accept_queue {
                // Their requests are rejected as they are dropped.
                let waiting = accept_queue.close().len() as u64;
                self.spec.counts.requests.add(waiting);
                self.spec.counts.unanswered.add(waiting);
            }
        }
    }

    /// Ends the run. Open connections stay while the run drains; no more are accepted.
    pub(super) fn fail(&mut self, message: String) {
        tracing::error!(port = %self.spec.port.name, "{message}");
        let lcore = self.spec.port.lcore.clone();
        self.spec.mailbox.control().fail(FailureReport { lcore, stage: None, panicked: false, message });
        self.stop_taking();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use verbline_plan::{Loader, Machine, StageSpec};
    use verbline_verbs::connection::{ConnectOptions, resolve};
    use verbline_verbs::{Device, Provider, QpSpec, Transport};

    use crate::api::outputs::Outputs;
    use crate::api::registry::Registry;
    use crate::api::stage::Stage;
    use crate::connection::multi_port::cm_thread::CmThread;
    use crate::control::event_fd::{ConnectionStops, StopFlag};
    use crate::setup::assemble::build;
    use crate::stats::counter::Shared;

    struct Desk;

    impl Stage for Desk {
        fn process(&mut self, _: &mut verbline_mem::Batch, _: &mut Outputs<'_>) {}
    }

    /// Two ports on one lcore, which take the requests of one listener in turn.
    fn text() -> String {
        let port = |name: &str, keys: &str| {
            format!(
                r#"
                [port.{name}]
                lcore = "only"
                device = "nic0"
                pool = "p"
                transport = "rc"
                connections_max = 2
                rx_depth_wr = 4
                tx_depth_wr = 4
                next = "stage.{name}"
                {keys}
                [stage.{name}]
                use = "desk"
                lcore = "only"
                out = {{ out = "port.{name}" }}
                "#
            )
        };
        r#"
        [device.nic0]
        provider = "soft"
        name = "soft0"
        [lcore.only]
        cpu = "allowed:0"
        [pool.p]
        device = "nic0"
        packets = 512
        data_bytes = 64
        pages = "4KiB"
        "#
        .to_owned()
            + &port("a", "listen = \"10.9.9.1:7901\"\nplacement = \"round-robin\"")
            + &port("b", "listen_with = \"port.a\"")
    }

    /// Regression: a thread that heard of both stops at once left the requests that waited for it,
    /// and no counter had them.
    #[test]
    fn a_request_that_waits_is_counted_though_both_stops_come_at_once() {
        let mut registry = Registry::new("test");
        let spec = StageSpec { outputs: &["out"], summary: "says nothing", ..StageSpec::default() };
        registry.stage("desk", spec, |_| Ok(Box::new(Desk)));
        let loader = Loader::new(registry.catalog(), Machine::detect());
        let plan = loader.load_str("two.toml", &text()).unwrap_or_else(|faults| panic!("{faults}"));
        let built = build(&plan, &registry).unwrap();
        let stops = ConnectionStops::new(Arc::new(StopFlag::new().unwrap()), 1).unwrap();
        let counts: Vec<_> = built.cm_threads.iter().map(|spec| Shared::clone(&spec.counts)).collect();
        let threads = built.cm_threads.into_iter().map(|spec| CmThread::new(spec, stops.of_lcore(0)).unwrap());
        let mut threads: Vec<CmThread> = threads.collect();

        let context = Device::find(Provider::Soft, "soft1").unwrap().open().unwrap();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(16, None).unwrap());
        let _asked: Vec<_> = (0..2)
            .map(|tag| {
                let depths = QpSpec { tx_depth_wr: 4, rx_depth_wr: 4, ..QpSpec::new(Transport::Rc, &cq) };
                let mut qp = pd.create_qp(&QpSpec { tag, ..depths }).unwrap();
                let [to, from] = ["10.9.9.1:7901", "10.9.9.2:0"].map(|text| text.parse().unwrap());
                let route = resolve(Provider::Soft, to, Some(from), Duration::ZERO).unwrap();
                (route.connect(&mut qp, &ConnectOptions::default()).unwrap(), qp)
            })
            .collect();
        let listens = threads.iter().position(|thread| thread.spec.port.name == "a").unwrap();
        while counts[listens].requests.value() < 2 {
            threads[listens].turn(None).unwrap();
        }
        stops.stop_connecting();
        stops.stop_watching();
        let _ended = threads.remove(1 - listens).run();
        let sharing = &counts[1 - listens];
        assert_eq!((sharing.requests.value(), sharing.unanswered.value()), (1, 1));
    }
}
