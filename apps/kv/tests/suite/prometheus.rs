//! The metrics of a run under a real Prometheus: it scrapes them, every query of the shipped
//! dashboard has an answer, and every alert can be evaluated.

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use verbline_tests::{Program, free_port, own_address, root, skipped, two_lcores};

/// The limit of each wait, on a busy machine, too.
const PATIENCE: Duration = Duration::from_secs(90);

/// A Prometheus that scrapes one run each second, until it is dropped. It would not start with
/// alert rules that it can't read.
struct Prometheus {
    child: Child,
    url: String,
}

impl Prometheus {
    /// `None` where it is not installed.
    fn start(folder: &Path, target: &str) -> Option<Prometheus> {
        let rules = root().join("config/prometheus/alerts.yml");
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
             rule_files: [{rules:?}]\n\
             scrape_configs: [{{ job_name: verbline, static_configs: [{{ targets: [\"{target}\"] }}] }}]\n"
        );
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let flag = |name: &str, value: &Path| format!("--{name}={}", value.display());
        let child = Command::new("prometheus")
            .args([flag("config.file", &file), flag("storage.tsdb.path", &folder.join("data"))])
            .args([&format!("--web.listen-address={address}"), "--log.level=error"])
            .stderr(Stdio::inherit())
            .spawn();
        Some(Prometheus { child: child.ok()?, url: format!("http://{address}") })
    }

    /// The answer to a query, or the error text.
    fn ask(&self, query: &str) -> Result<Vec<Value>, String> {
        let output =
            Command::new("promtool").args(["query", "instant", "-o", "json", &self.url, query]).output().unwrap();
        serde_json::from_slice(&output.stdout).map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Fails if the process has ended already, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The queries of the dashboard, for all runs, with a range of several scrapes.
fn queries() -> Vec<String> {
    let dashboard = std::fs::read_to_string(root().join("config/prometheus/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let queries = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let filled = |query: &str| query.replace("$instance", ".*").replace("$__rate_interval", "10s");
    queries.map(|target| filled(target["expr"].as_str().unwrap())).collect()
}

/// A run with everything: rings, operations, connections, and a device with an address.
#[test]
fn two_lcores_under_a_real_prometheus_answer_every_query_of_the_dashboard() {
    let Some(place) = two_lcores(["server", "load"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let target = format!("127.0.0.1:{}", free_port());
    let Some(prometheus) = Prometheus::start(folder.path(), &target) else {
        return skipped("prometheus is not installed (Debian: prometheus)");
    };
    let address = own_address(3);
    let sets = [format!("metrics.listen=\"{target}\""), format!("device.nic0.address={address}")];
    let run = Program::new(env!("CARGO_BIN_EXE_kv"))
        .with(["run", "config/kv.toml", "--quiet", "--for", "1h"])
        .with(place)
        .with(sets.iter().flat_map(|set| ["--set", set]))
        .listening_in(folder.path())
        .start();
    let deadline = Instant::now() + PATIENCE;
    let mut waiting = queries();
    assert!(waiting.len() > 10);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    loop {
        // A datagram that is no packet is discarded, and counted.
        stranger.send_to(b"no packet", (address, 4791)).unwrap();
        waiting.retain(|query| !prometheus.ask(query).is_ok_and(|found| !found.is_empty()));
        if waiting.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "no data: {waiting:#?}, {:?}", prometheus.ask(&waiting[0]));
        std::thread::sleep(Duration::from_millis(500));
    }
    let failing = prometheus.ask("ALERTS{alertstate=\"firing\", severity=\"critical\"}").unwrap();
    assert!(failing.is_empty(), "{failing:?}");
    run.signal(rustix::process::Signal::INT);
    run.finish().exited(0);
}
