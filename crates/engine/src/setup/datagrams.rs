//! Builds the peer table of a UD port with several peers.

use std::sync::Arc;

use verbline_plan::{Plan, Port, Transport};
use verbline_verbs::datagram::AhSpec;

use crate::control::run_control::{Control, LcoreInbox};
use crate::errors::error::{EngineError, system};
use crate::errors::no_thread;
use crate::ports::datagrams::ah_maker::AhMaker;
use crate::ports::datagrams::{Datagrams, DatagramsSpec};
use crate::setup::attributes::path_of;
use crate::setup::devices::Opened;

/// The peers of a UD port with several; `None` for other ports.
pub(super) fn datagrams(
    plan: &Plan,
    port: &Port,
    device: &Opened,
    control: &Arc<Control>,
) -> Result<Option<Box<Datagrams>>, EngineError> {
    if !has_peers(port) {
        return Ok(None);
    }
    let (lcore, senders) = (&plan[port.lcore], port.senders_max as usize);
    let make = || {
        let place_on_lcore = lcore.ports.iter().position(|id| *id == port.id).expect("a port is on its lcore");
        let inbox = LcoreInbox { control: Arc::clone(control), lcore: lcore.id.index() };
        AhMaker::new(device.pd.clone(), inbox, place_on_lcore, senders, &port.name)
    };
    let (call, remedy) = ("starting the thread that makes address handles", no_thread::remedy());
    let maker = (senders > 0).then(make).transpose().map_err(system(plan, port.span, lcore.id, call, remedy))?;
    let usual = AhSpec::default().from_port(plan[port.device].port_num, device.gid_index);
    Ok(Some(Box::new(Datagrams::new(DatagramsSpec {
        port: port.id.index() as u16,
        asks: port.send_options,
        named: if port.destination.peer().is_some() { 1 } else { port.send_to.len() },
        senders,
        qkey: port.attributes.qkey,
        path: path_of(port, usual),
        maker,
        pending: port.batch_packets as usize,
    }))))
}

/// Whether the port's packets name their destinations.
pub(super) fn has_peers(port: &Port) -> bool {
    port.transport == Transport::Ud && (port.senders_max > 0 || port.send_to.len() > 1)
}
