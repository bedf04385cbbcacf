//! The private data of the initiator's connection requests: the queue of each connection.

use verbline::engine::RequestData;
use verbline::plan::{Port, Target};
use verbline::prelude::*;
use verbline_nvme::cm::Request;

use crate::handshake_state::ADMIN_ENTRIES;
use crate::settings::{SECTION, Settings};
use crate::stage::{ADMIN, IO, KIND};

/// The request for a queue with this many entries.
fn request(qid: u16, entries: u16) -> Vec<u8> {
    Request { qid, recv_depth: entries, send_depth_less_one: entries - 1, cntlid: 0 }.to_bytes().to_vec()
}

pub(crate) fn register(registry: &mut Registry) {
    registry.requests(|plan, port| {
        let section = plan.section(SECTION)?;
        let settings = Settings::read(section).ok()?;
        let leads = |out: OutId| leads_to(plan, out, port);
        if leads(ADMIN) {
            let data: RequestData = Box::new(|_| request(0, ADMIN_ENTRIES));
            return Some(data);
        }
        leads(IO).then(|| -> RequestData {
            // One entry more than commands: a full queue would look empty.
            Box::new(move |place| request(place as u16 + 1, settings.depth + 1))
        })
    });
}

/// Whether this output of an initiator leads to the port.
fn leads_to(plan: &Plan, out: OutId, port: &Port) -> bool {
    let stages = plan.stages().iter().filter(|stage| stage.kind == KIND);
    stages
        .into_iter()
        .any(|stage| matches!(stage.outputs.get(usize::from(out.0)), Some(Target::Port(id)) if *id == port.id))
}
