//! Checks the options that a stage asks for its sends against the ports that they go through.

use crate::catalog::outputs::{OutputSends, SendOption};
use crate::check::refs::{Hop, Links};
use crate::choices::Transport;
use crate::diag::sink::Sink;
use crate::ids::{Consumer, PortId, Target};
use crate::machine::note::listed;
use crate::read::raw::RawPlan;
use crate::read::raw_port::RawPort;
use crate::read::raw_stage::RawStage;
use crate::read::reader::Field;

/// Checks that each port behind an output supports the options of the stage's sends. Behind another
/// stage their fate is unknown.
pub(crate) fn check(
    raw: &RawPlan,
    links: &Links<'_>,
    stage: &RawStage,
    asked: &OutputSends,
    hop: Hop,
    sink: &mut Sink,
) {
    let (mut todo, mut ports): (Vec<Target>, Vec<PortId>) = (vec![hop.target], Vec::new());
    while let Some(target) = todo.pop() {
        match target {
            Target::Port(id) => ports.push(id),
            Target::Ring(id) => match links.rings[id.index()] {
                Some(Consumer::Port(id)) => ports.push(id),
                Some(Consumer::Stage(_)) | None => {}
            },
            Target::Spread(id) => todo.extend(links.spreads[id.index()].iter().map(|hop| hop.target)),
            Target::Stage(_) | Target::Drop => {}
        }
    }
    ports.sort_unstable();
    ports.dedup();
    let kinds: Vec<&str> = asked.options.iter().map(|option| option.words()).collect();
    let (stage, kinds) = (&stage.head.name, listed(&kinds));
    let what = format!("stage.{stage} asks for {kinds} over its output `{}`", asked.output);
    for port in ports.into_iter().map(|id| &raw.ports[id.index()]) {
        check_port(port, asked.options, &what, hop, sink);
    }
}

fn check_port(port: &RawPort, options: &[SendOption], what: &str, hop: Hop, sink: &mut Sink) {
    let name = &port.head.name;
    if !port.send_options.value {
        sink.error("no-send-options", port.send_options.span, format!("port.{name} does not look at what packets ask"))
            .related(hop.span, what)
            .help(format!("add `send_options = true` to [port.{name}]"));
        return;
    }
    if options.contains(&SendOption::Returned) && port.sent.is_none() {
        sink.error("no-send-options", port.head.span, format!("port.{name} gives no packet back"))
            .related(hop.span, what)
            .help(format!("add `sent = \"stage.NAME\"` to [port.{name}]: where packets go once they are sent"));
    }
    let unreliable = |transport: &&Field<Transport>| transport.value != Transport::Rc;
    if let Some(transport) = port.transport.as_ref().filter(unreliable).filter(|_| options.contains(&SendOption::Fence))
    {
        sink.error(
            "no-send-options",
            transport.span,
            format!("port.{name} has no fences: only RC has READs and atomics"),
        )
        .related(hop.span, what)
        .help("write `transport = \"rc\"`");
    }
}
