//! `[metrics]` in the plan: the HTTP address of the metrics, and their readers.

use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;
use verbline_engine::Registry;
use verbline_plan::{AppKey, Diagnostic, Keys, Params, Plan};

/// The section's name.
pub(crate) const SECTION: &str = "metrics";

/// The most connections with metrics of their own: each time series costs its reader memory.
const CONNECTIONS_MAX: u64 = 1000;

/// A plan's `[metrics]`, checked.
///
/// ```toml
/// [metrics]
/// listen = "127.0.0.1:9500"
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsSettings {
    /// The listening address: of this machine alone, unless there are `hosts`.
    pub listen: SocketAddr,
    /// The names by which readers on other machines call this one.
    pub hosts: Vec<String>,
    /// The number of connections that have metrics of their own.
    pub connections_max: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    listen: String,
    #[serde(default)]
    hosts: Vec<String>,
    connections_max: u32,
}

impl Keys for Raw {
    const KEYS: &'static [AppKey] = &[
        AppKey::text(
            "listen",
            "ADDRESS:PORT",
            "where readers connect; of this machine alone, unless there are `hosts`",
        ),
        AppKey::texts("hosts", "names", "what readers on other machines call this one"),
        AppKey::integer("connections_max", 0..=CONNECTIONS_MAX, "connections that have series of their own").or(0),
    ];
}

impl MetricsSettings {
    /// Registers the section, so that a plan may have it.
    pub fn register(registry: &mut Registry) {
        registry.section_of::<Raw>(SECTION, "who may read the run's counters by HTTP, as OpenMetrics");
    }

    /// The plan's settings; `None` without the section, and then nothing listens.
    ///
    /// # Errors
    /// A key is unknown, missing or wrong.
    pub fn of(plan: &Plan) -> Result<Option<MetricsSettings>, Diagnostic> {
        plan.section(SECTION).filter(|section| section.is_present()).map(checked).transpose()
    }

    /// Whether `host`, from a request, is this machine. A page of another site that a browser
    /// resolves to this address uses that site's name.
    pub(crate) fn is_host(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        let is_own = |ip: IpAddr| ip.is_loopback() || ip == self.listen.ip();
        name.eq_ignore_ascii_case("localhost")
            || name.parse().is_ok_and(is_own)
            || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

fn checked(section: &Params) -> Result<MetricsSettings, Diagnostic> {
    let Raw { listen, hosts, connections_max } = section.read()?;
    let Ok(listen) = listen.parse::<SocketAddr>() else {
        let message = format!("`{listen}` is no address with a port, e.g. `127.0.0.1:9500` or `[::1]:9500`");
        return Err(section.refuse("listen", message));
    };
    if !listen.ip().is_loopback() && hosts.is_empty() {
        let message = format!(
            "others reach {listen}; to let them read the metrics, name this machine as they call it, e.g. \
             `hosts = [\"gateway.example\"]`, or listen at 127.0.0.1"
        );
        return Err(section.refuse("listen", message));
    }
    if let Some(host) = hosts.iter().find(|host| host.is_empty() || host.contains([':', '/', ' ', '*'])) {
        return Err(section.refuse("hosts", format!("`{host}` is no name of a machine; it has neither port nor path")));
    }
    Ok(MetricsSettings { listen, hosts, connections_max })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_this_machine_by_any_of_its_names_and_no_other() {
        let settings = |listen: &str, hosts: &[&str]| MetricsSettings {
            listen: listen.parse().unwrap(),
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            connections_max: 0,
        };
        let local = settings("127.0.0.1:9500", &[]);
        for host in ["localhost", "LOCALHOST:9500", "127.0.0.1:9500", "127.0.0.1", "[::1]:9500", "[::1]"] {
            assert!(local.is_host(host), "{host}");
        }
        for host in ["", "evil.example", "evil.example:9500", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil"] {
            assert!(!local.is_host(host), "{host}");
        }
        let open = settings("10.0.0.1:9500", &["gateway.example"]);
        assert!(open.is_host("Gateway.Example:80") && open.is_host("10.0.0.1:9500") && !open.is_host("10.0.0.2"));
    }
}
