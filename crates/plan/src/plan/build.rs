//! Builds a [`Plan`] from the results of the checks, which have reported every fault.

use crate::catalog::Catalog;
use crate::check::Checked;
use crate::check::addresses;
use crate::check::alternate;
use crate::check::edges::LaneEdges;
use crate::check::upstream::Batch;
use crate::choices::Transport;
use crate::diag::diagnostics::Diagnostics;
use crate::diag::source::{Sources, Span};
use crate::draw::graph::Drawing;
use crate::ids::{DeviceId, InjectorId, LcoreId, PoolId, PortId, Producer, RegionId, RingId, SpreadId, StageId};
use crate::machine::Machine;
use crate::machine::note::Note;
use crate::plan::links::{Injector, Lane, Ring, Spread};
use crate::plan::port::{Acceptor, AlternatePath, Attributes, Connections, Port, Retries};
use crate::plan::{Device, Lcore, Plan, Pool, Region, Stage};
use crate::read::raw_port::RawPort;
use crate::read::reader::Field;
use crate::sums::offers::Operates;
use crate::sums::sum::Sum;
use crate::text::params::Params;

/// The findings about a plan, which the plan keeps.
pub(crate) struct Said {
    pub(crate) sums: Vec<Sum>,
    /// The least depth of each lcore's completion queue.
    pub(crate) completions: Vec<u64>,
    /// The total of all descriptors that are open at once.
    pub(crate) descriptors: u64,
    /// Whether each stage asks for operations, by output.
    pub(crate) operates: Operates,
    pub(crate) drawing: Drawing,
    pub(crate) warnings: Diagnostics,
    pub(crate) notes: Vec<Note>,
    /// The machine that the plan was checked against.
    pub(crate) machine: Machine,
}

impl Checked<'_> {
    /// Builds the plan, unless something is missing.
    pub(crate) fn build(&self, catalog: &Catalog, sources: &Sources, said: Said) -> Option<Plan> {
        let rings: Vec<Ring> = (0..self.raw.rings.len()).map(|index| self.ring(index)).collect::<Option<_>>()?;
        Some(Plan {
            sources: sources.clone(),
            name: self.raw.name.clone().unwrap_or_else(|| stem(sources)),
            app: self.raw.app.clone(),
            devices: (0..self.raw.devices.len()).map(|index| self.device(index)).collect::<Option<_>>()?,
            pools: (0..self.raw.pools.len()).map(|index| self.pool(index)).collect::<Option<_>>()?,
            regions: (0..self.raw.regions.len()).map(|index| self.region(index)).collect::<Option<_>>()?,
            lcores: (0..self.raw.lcores.len()).map(|index| self.lcore(index, &rings, &said)).collect::<Option<_>>()?,
            ports: (0..self.raw.ports.len()).map(|index| self.port(index, sources)).collect::<Option<_>>()?,
            injectors: (0..self.raw.injectors.len()).map(|index| self.injector(index)).collect::<Option<_>>()?,
            stages: (0..self.raw.stages.len()).map(|index| self.stage(index, sources, &said)).collect::<Option<_>>()?,
            sections: self.sections(catalog, sources),
            spreads: (0..self.raw.spreads.len()).map(|index| self.spread(index)).collect::<Option<_>>()?,
            rings,
            sums: said.sums,
            descriptors: said.descriptors,
            drawing: said.drawing,
            warnings: said.warnings,
            notes: said.notes,
            machine: said.machine,
        })
    }

    fn device(&self, index: usize) -> Option<Device> {
        let raw = &self.raw.devices[index];
        Some(Device {
            id: DeviceId::from_index(index),
            name: raw.head.name.clone(),
            span: raw.head.span,
            provider: raw.provider.as_ref()?.value,
            device_name: raw.device_name.as_ref().map(|field| field.value.clone()),
            port_num: u8::try_from(raw.port_num.value).ok()?,
            gid_index: raw.gid_index.as_ref().map(|field| u8::try_from(field.value)).transpose().ok()?,
            address: match &raw.address {
                Some(field) => Some(addresses::ip(&field.value)?),
                None => None,
            },
        })
    }

    fn pool(&self, index: usize) -> Option<Pool> {
        let raw = &self.raw.pools[index];
        let reach = &self.flow.reach[index];
        Some(Pool {
            id: PoolId::from_index(index),
            name: raw.head.name.clone(),
            span: raw.head.span,
            device: self.links.pools[index]?,
            packets: raw.packets.as_ref()?.value,
            data_bytes: raw.data_bytes.as_ref()?.value,
            headroom_bytes: raw.headroom_bytes.value,
            pages: raw.pages.value,
            node: raw.node.as_ref().map(|field| field.value),
            cache_packets: raw.cache_packets.value,
            lcores: reach.lcores.iter().copied().collect(),
            sent_by: reach.sent_by.iter().copied().collect(),
        })
    }

    fn region(&self, index: usize) -> Option<Region> {
        let (raw, facts) = (&self.raw.regions[index], &self.regions[index]);
        Some(Region {
            id: RegionId::from_index(index),
            name: raw.head.name.clone(),
            span: raw.head.span,
            device: facts.device?,
            len_bytes: raw.bytes.as_ref()?.value,
            pages: raw.pages.value,
            node: raw.node.as_ref().map(|field| field.value),
            rights: facts.rights,
            owner: facts.owner,
        })
    }

    fn injector(&self, index: usize) -> Option<Injector> {
        let (raw, links) = (&self.raw.injectors[index], &self.links.injectors[index]);
        Some(Injector {
            id: InjectorId::from_index(index),
            name: raw.head.name.clone(),
            span: raw.head.span,
            to: links.to?,
            lcore: self.links.stages[links.to?.index()].lcore?,
            pool: links.pool?,
            depth_packets: raw.depth.as_ref()?.value,
        })
    }

    fn lcore(&self, index: usize, rings: &[Ring], said: &Said) -> Option<Lcore> {
        let raw = &self.raw.lcores[index];
        let id = LcoreId::from_index(index);
        let links = &self.links;
        let mut ports: Vec<PortId> = (0..links.ports.len())
            .filter(|port| links.ports[*port].lcore == Some(id))
            .map(PortId::from_index)
            .collect();
        ports.sort_by_key(|port| self.raw.ports[port.index()].many().is_some());
        let pools = self.flow.reach.iter().enumerate().filter(|(_, reach)| reach.lcores.contains(&id));
        Some(Lcore {
            id,
            name: raw.head.name.clone(),
            span: raw.head.span,
            cpu: self.lcores.cpus[index]?,
            idle: raw.idle.value,
            burst_packets: raw.burst_packets.value,
            spin: raw.spin.as_ref().map(|field| field.value),
            late_share: raw.late_share.as_ref().map(|field| field.value),
            spin_max: raw.spin_max.as_ref().map(|field| field.value),
            dwell: raw.dwell.as_ref().map(|field| field.value),
            pause: raw.pause.value,
            unsolicited_wait: raw.unsolicited_wait.as_ref().map(|field| field.value),
            drain: raw.drain.value,
            device: self.lcores.devices[index],
            cq_depth_wc: match &raw.cq_depth_wc {
                Some(depth) => depth.value,
                None => u32::try_from(said.completions[index]).ok()?,
            },
            ports,
            stages: self.order.iter().copied().filter(|stage| links.stages[stage.index()].lcore == Some(id)).collect(),
            rings_in: rings.iter().filter(|ring| ring.to_lcore == id).map(|ring| ring.id).collect(),
            rings_out: rings.iter().filter(|ring| ring.lane_of(id).is_some()).map(|ring| ring.id).collect(),
            pools: pools.map(|(pool, _)| PoolId::from_index(pool)).collect(),
        })
    }

    fn port(&self, index: usize, sources: &Sources) -> Option<Port> {
        let raw = &self.raw.ports[index];
        let (links, facts) = (&self.links.ports[index], &self.ports[index]);
        let receives = raw.receives();
        Some(Port {
            id: PortId::from_index(index),
            name: raw.head.name.clone(),
            span: raw.head.span,
            lcore: links.lcore?,
            device: links.device?,
            pool: links.pool.filter(|_| receives),
            transport: raw.transport.as_ref()?.value,
            join: facts.join.clone(),
            destination: facts.destination,
            send_to: facts.send_to.clone(),
            senders_max: raw.senders_max.value,
            connect_to: raw.connect_to(),
            connect_timeout: raw.connect_timeout.value,
            reconnect: raw.reconnects(),
            connections: connections(raw, links.listen_with),
            acceptor: acceptor(raw, sources),
            private_data: raw.shared.private_data.as_ref().map_or(String::new(), |field| field.value.clone()),
            rx_depth_wr: raw.rx_depth_wr.value,
            tx_depth_wr: raw.tx_depth_wr.value,
            ops_depth_wr: raw.ops_depth_wr.value,
            max_sge: raw.max_sge.value,
            windows: raw.windows.value,
            signature_keys: raw.signature_keys.value,
            immediates: raw.immediates.value,
            inline_bytes: raw.inline_bytes.value,
            signal_every_wr: facts.signal_every_wr,
            solicited: raw.solicited.value,
            send_options: raw.send_options.value,
            sent: links.sent.map(|hop| hop.target).filter(|_| raw.tx_depth_wr.value > 0),
            retries: retries(raw),
            attributes: attributes(raw),
            alternate: alternate_path(raw),
            timestamps: raw.timestamps.value,
            next: facts.next,
            batch_packets: self.flow.ports[index].as_ref().map_or(0, Batch::packets),
            said: raw.retries.given().chain(raw.attributes.given()).chain(raw.alternate.given()).collect(),
        })
    }

    fn ring(&self, index: usize) -> Option<Ring> {
        let raw = &self.raw.rings[index];
        let to = self.links.rings[index]?;
        let lanes = self.edges.lanes(RingId::from_index(index)).iter().zip(&self.flow.rings[index]);
        Some(Ring {
            id: RingId::from_index(index),
            name: raw.head.name.clone(),
            span: raw.head.span,
            depth_packets: raw.depth.as_ref()?.value,
            lanes: lanes.zip(&self.flow.held[index]).map(|((lane, batch), held)| lane.build(batch, held)).collect(),
            to,
            to_lcore: self.links.lcore_of(to)?,
            full: raw.full.value,
            priority: raw.priority.value,
        })
    }

    fn spread(&self, index: usize) -> Option<Spread> {
        let raw = &self.raw.spreads[index];
        Some(Spread {
            id: SpreadId::from_index(index),
            name: raw.head.name.clone(),
            span: raw.head.span,
            by: raw.by.as_ref()?.value,
            to: self.links.spreads[index].iter().map(|hop| hop.target).collect(),
        })
    }

    fn stage(&self, index: usize, sources: &Sources, said: &Said) -> Option<Stage> {
        let raw = &self.raw.stages[index];
        let links = &self.links.stages[index];
        let path = format!("stage.{}.params", raw.head.name);
        let params = match &raw.params {
            Some((head, node)) => Params::new(sources, path, *head, node.clone()),
            None => Params::absent(sources, path, raw.head.span),
        };
        let kind: &Field<String> = raw.kind.as_ref()?;
        Some(Stage {
            id: StageId::from_index(index),
            name: raw.head.name.clone(),
            span: raw.head.span,
            kind: kind.value.clone(),
            lcore: links.lcore?,
            pool: links.pool,
            timers_max: raw.timers_max.value,
            regions: self.regions_of(StageId::from_index(index)),
            outputs: links.outputs.iter().map(|hop| hop.target).collect(),
            operates: said.operates[index].clone(),
            params: params.sharing(&raw.params_asked),
            batch_packets: self.flow.stages[index].packets(),
        })
    }

    fn regions_of(&self, stage: StageId) -> Vec<RegionId> {
        let owned = self.regions.iter().enumerate().filter(|(_, facts)| facts.owner == Some(stage));
        owned.map(|(index, _)| RegionId::from_index(index)).collect()
    }

    fn sections(&self, catalog: &Catalog, sources: &Sources) -> Vec<Params> {
        let top = Span::new(0, 0..0);
        let pairs = catalog.sections.iter().zip(&self.raw.sections);
        let section = |(name, read): (&&'static str, &Option<(Span, crate::text::tree::Node)>)| {
            let name = (*name).to_owned();
            match read {
                Some((head, node)) => Params::new(sources, name, *head, node.clone()),
                None => Params::absent(sources, name, top),
            }
        };
        pairs.map(section).collect()
    }
}

impl LaneEdges {
    fn build(&self, batch: &Batch, held: &[StageId]) -> Lane {
        let mut from: Vec<Producer> = self.edges.iter().map(|edge| edge.from).collect();
        // The outputs of one stage are adjacent.
        from.dedup();
        Lane { lcore: self.lcore, from, batch_packets: batch.packets(), held: held.to_vec() }
    }
}

fn connections(raw: &RawPort, listen_with: Option<PortId>) -> Option<Connections> {
    Some(Connections {
        max: raw.many()?.value,
        rx_shared_wr: raw.shared.rx_shared_wr.value,
        tx_shared_wr: u32::try_from(raw.sends().wr()).unwrap_or(u32::MAX),
        listen_with,
        placement: raw.shared.placement.value,
        ops_shared_wr: u32::try_from(raw.operations().wr()).unwrap_or(u32::MAX),
    })
}

/// The retries of a port; `None` unless RC. The checks bound each value by its bits.
fn retries(raw: &RawPort) -> Option<Retries> {
    let code = |field: &Field<u32>| field.value as u8;
    raw.transport.as_ref().filter(|transport| transport.value == Transport::Rc)?;
    Some(Retries {
        timeout: raw.retries.timeout.as_ref().map(code),
        retry_cnt: code(&raw.retries.retry_cnt),
        rnr_retry: code(&raw.retries.rnr_retry),
        min_rnr_timer: code(&raw.retries.min_rnr_timer),
    })
}

/// The checks bound each value by its bits.
fn attributes(raw: &RawPort) -> Attributes {
    let byte = |field: &Option<Field<u32>>| field.as_ref().map(|field| field.value as u8);
    let raw = &raw.attributes;
    Attributes {
        traffic_class: byte(&raw.traffic_class),
        hop_limit: byte(&raw.hop_limit),
        service_level: byte(&raw.service_level),
        path_mtu_bytes: raw.path_mtu.as_ref().map(|field| field.value),
        pkey: raw.pkey.as_ref().map(|field| field.value as u16),
        qkey: raw.qkey(),
        max_rd_atomic: byte(&raw.max_rd_atomic),
        max_dest_rd_atomic: byte(&raw.max_dest_rd_atomic),
        rate_limit_kbit_per_s: raw.rate_limit.as_ref().map(|field| field.value),
    }
}

/// The checks bound each value by its bits.
fn alternate_path(raw: &RawPort) -> Option<AlternatePath> {
    let byte = |field: &Option<Field<u32>>| field.as_ref().map(|field| field.value as u8);
    let raw = &raw.alternate;
    Some(AlternatePath {
        gid: alternate::parse(raw.gid.as_ref()?)?,
        lid: raw.lid.as_ref().map_or(0, |field| field.value as u16),
        port_num: byte(&raw.port),
        gid_index: byte(&raw.gid_index),
        pkey: raw.pkey.as_ref().map(|field| field.value as u16),
        timeout: byte(&raw.timeout),
    })
}

fn acceptor(raw: &RawPort, sources: &Sources) -> Option<Acceptor> {
    let name = raw.shared.acceptor.as_ref()?.value.clone();
    let path = format!("port.{}.acceptor_params", raw.head.name);
    let params = match &raw.shared.acceptor_params {
        Some((head, node)) => Params::new(sources, path, *head, node.clone()),
        None => Params::absent(sources, path, raw.head.span),
    };
    Some(Acceptor { name, params })
}

/// The file's name without folders and extension.
fn stem(sources: &Sources) -> String {
    let file = sources.source(Span::new(0, 0..0)).name.as_str();
    let stem = std::path::Path::new(file).file_stem().and_then(|stem| stem.to_str());
    stem.unwrap_or("plan").to_owned()
}
