//! The shape of a port in the file, with the keys of many connections.

use std::time::Duration;

use crate::choices::{Placement, Transport};
use crate::diag::source::Span;
use crate::limits::{
    CONNECT_TIMEOUT, CONNECTIONS_MAX, CQ_DEPTH_MAX, DEPTH_MAX, DURATION_MAX, HOP_LIMIT_MAX, INLINE_BYTES, LID_MAX,
    LISTED_MAX, MIN_RNR_TIMER, PATH_MTU_MAX, PATH_MTU_MIN, PKEY_MAX, PORT_NUM_MAX, QKEY, QKEY_MAX, RD_ATOMIC_MAX,
    RETRIES_MAX, RETRY_CNT, RNR_RETRY, SENDERS_MAX, SERVICE_LEVEL_MAX, SGE_MAX, SHARED_DEPTH_MAX, SIGNAL_EVERY_WR,
    SIGNATURE_KEYS_MAX, TIMER_CODE_MAX, TRAFFIC_CLASS_MAX, WINDOWS_MAX,
};
use crate::read::reader::{Field, Reader, TableHeader, table_of};
use crate::text::tree::Node;

#[derive(Debug)]
pub(crate) struct RawPort {
    pub(crate) head: TableHeader,
    pub(crate) lcore: Option<Field<String>>,
    pub(crate) device: Option<Field<String>>,
    pub(crate) pool: Option<Field<String>>,
    pub(crate) transport: Option<Field<Transport>>,
    pub(crate) join: Vec<Field<String>>,
    pub(crate) join_key: Option<Span>,
    pub(crate) send_to: Option<Field<String>>,
    /// Groups after the first.
    pub(crate) send_also: Vec<Field<String>>,
    pub(crate) senders_max: Field<u32>,
    pub(crate) peer: Option<Field<String>>,
    pub(crate) listen: Option<Field<String>>,
    pub(crate) connect: Option<Field<String>>,
    /// Addresses after the first.
    pub(crate) connect_also: Vec<Field<String>>,
    pub(crate) connect_timeout: Field<Duration>,
    pub(crate) reconnect: Field<bool>,
    pub(crate) shared: RawShared,
    pub(crate) rx_depth_wr: Field<u32>,
    pub(crate) tx_depth_wr: Field<u32>,
    pub(crate) ops_depth_wr: Field<u32>,
    pub(crate) max_sge: Field<u32>,
    pub(crate) windows: Field<u32>,
    pub(crate) signature_keys: Field<u32>,
    pub(crate) immediates: Field<bool>,
    pub(crate) inline_bytes: Field<u32>,
    pub(crate) signal_every_wr: Field<u32>,
    pub(crate) solicited: Field<bool>,
    pub(crate) send_options: Field<bool>,
    pub(crate) sent: Option<Field<String>>,
    pub(crate) retries: RawRetries,
    pub(crate) attributes: RawAttributes,
    pub(crate) alternate: RawAlternate,
    pub(crate) timestamps: Field<bool>,
    pub(crate) next: Option<Field<String>>,
}

/// When a reliable connection retries, and when it gives up.
#[derive(Debug)]
pub(crate) struct RawRetries {
    pub(crate) timeout: Option<Field<u32>>,
    pub(crate) retry_cnt: Field<u32>,
    pub(crate) rnr_retry: Field<u32>,
    pub(crate) min_rnr_timer: Field<u32>,
}

/// The keys of many connections.
#[derive(Debug)]
pub(crate) struct RawShared {
    pub(crate) connections_max: Option<Field<u32>>,
    pub(crate) connections: Option<Field<u32>>,
    pub(crate) rx_shared_wr: Field<u32>,
    pub(crate) tx_shared_wr: Option<Field<u32>>,
    pub(crate) ops_shared_wr: Option<Field<u32>>,
    pub(crate) listen_with: Option<Field<String>>,
    pub(crate) placement: Field<Placement>,
    pub(crate) acceptor: Option<Field<String>>,
    /// The place of its key, and the table.
    pub(crate) acceptor_params: Option<(Span, Node)>,
    pub(crate) private_data: Option<Field<String>>,
}

impl RawPort {
    pub(crate) fn read(head: TableHeader, reader: &mut Reader<'_>) -> RawPort {
        let transports = [("rc", Transport::Rc), ("uc", Transport::Uc), ("ud", Transport::Ud)];
        let mut port = RawPort {
            head,
            lcore: reader.text("lcore", "\"NAME\", the lcore that owns it"),
            device: reader.text("device", "\"NAME\", the device that it is on"),
            pool: reader.optional_text("pool"),
            transport: reader.choice("transport", &transports),
            join_key: reader.place("join").map(|entry| entry.key_span),
            join: reader.texts("join", LISTED_MAX),
            send_to: None,
            send_also: reader.text_or_texts("send_to", LISTED_MAX),
            senders_max: reader.number_or("senders_max", 0..=SENDERS_MAX, 0),
            peer: reader.optional_text("peer"),
            listen: reader.optional_text("listen"),
            connect: None,
            connect_also: reader.text_or_texts("connect", LISTED_MAX),
            connect_timeout: reader.duration_or("connect_timeout", DURATION_MAX, CONNECT_TIMEOUT),
            reconnect: reader.flag_or("reconnect", true),
            shared: RawShared::read(reader),
            rx_depth_wr: read_depth(reader, "rx_depth_wr"),
            tx_depth_wr: read_depth(reader, "tx_depth_wr"),
            ops_depth_wr: read_depth(reader, "ops_depth_wr"),
            max_sge: reader.number_or("max_sge", 1..=SGE_MAX, 1),
            windows: reader.number_or("windows", 0..=WINDOWS_MAX, 0),
            signature_keys: reader.number_or("signature_keys", 0..=SIGNATURE_KEYS_MAX, 0),
            immediates: reader.flag_or("immediates", false),
            inline_bytes: reader.number_or("inline_bytes", 0..=1 << 16, INLINE_BYTES),
            signal_every_wr: reader.number_or("signal_every_wr", 1..=DEPTH_MAX, SIGNAL_EVERY_WR),
            solicited: reader.flag_or("solicited", false),
            send_options: reader.flag_or("send_options", false),
            sent: reader.optional_text("sent"),
            retries: RawRetries::read(reader),
            attributes: RawAttributes::read(reader),
            alternate: RawAlternate::read(reader),
            timestamps: reader.flag_or("timestamps", true),
            next: reader.optional_text("next"),
        };
        // The first address stands for the port wherever one address is needed.
        port.connect = (!port.connect_also.is_empty()).then(|| port.connect_also.remove(0));
        port.send_to = (!port.send_also.is_empty()).then(|| port.send_also.remove(0));
        port
    }
}

impl RawRetries {
    fn read(reader: &mut Reader<'_>) -> RawRetries {
        RawRetries {
            timeout: reader.optional_number("timeout", 0..=TIMER_CODE_MAX),
            retry_cnt: reader.number_or("retry_cnt", 0..=RETRIES_MAX, RETRY_CNT),
            rnr_retry: reader.number_or("rnr_retry", 0..=RETRIES_MAX, RNR_RETRY),
            min_rnr_timer: reader.number_or("min_rnr_timer", 0..=TIMER_CODE_MAX, MIN_RNR_TIMER),
        }
    }

    /// The keys that the plan gives, and their places.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, Span)> {
        let timeout = self.timeout.as_ref().map(|field| ("timeout", field.span));
        let others =
            [("retry_cnt", &self.retry_cnt), ("rnr_retry", &self.rnr_retry), ("min_rnr_timer", &self.min_rnr_timer)];
        timeout
            .into_iter()
            .chain(others.into_iter().filter(|(_, field)| field.given).map(|(key, field)| (key, field.span)))
    }
}

impl RawShared {
    fn read(reader: &mut Reader<'_>) -> RawShared {
        RawShared {
            connections_max: reader.optional_number("connections_max", 1..=CONNECTIONS_MAX),
            connections: reader.optional_number("connections", 1..=CONNECTIONS_MAX),
            rx_shared_wr: reader.number_or("rx_shared_wr", 0..=SHARED_DEPTH_MAX, 0),
            tx_shared_wr: reader.optional_number("tx_shared_wr", 1..=CQ_DEPTH_MAX),
            ops_shared_wr: reader.optional_number("ops_shared_wr", 1..=CQ_DEPTH_MAX),
            listen_with: reader.optional_text("listen_with"),
            placement: reader.choice_or_first("placement", &Placement::ALL.map(|by| (by.word(), by))),
            acceptor: reader.optional_text("acceptor"),
            acceptor_params: read_params(reader),
            private_data: reader.optional_text("private_data"),
        }
    }
}

/// Reads a depth. A bad one counts as the greatest, so that the port does not look as if it lacked
/// a queue.
fn read_depth(reader: &mut Reader<'_>, key: &'static str) -> Field<u32> {
    let depth = reader.number_or(key, 0..=DEPTH_MAX, 0);
    match reader.place(key) {
        Some(entry) if !depth.given => Field { value: DEPTH_MAX, span: entry.node.span, given: true },
        _ => depth,
    }
}

fn read_params(reader: &mut Reader<'_>) -> Option<(Span, Node)> {
    let entry = reader.table("acceptor_params")?;
    table_of(entry, "port.NAME.acceptor_params", reader.sink)?;
    Some((entry.key_span, entry.node.clone()))
}

/// Attributes of its queue pairs, by their names in ibv_modify_qp(3). The plan does not decide
/// about those that it leaves out.
#[derive(Debug)]
pub(crate) struct RawAttributes {
    pub(crate) traffic_class: Option<Field<u32>>,
    pub(crate) hop_limit: Option<Field<u32>>,
    pub(crate) service_level: Option<Field<u32>>,
    pub(crate) path_mtu: Option<Field<u32>>,
    pub(crate) pkey: Option<Field<u32>>,
    pub(crate) qkey: Option<Field<u32>>,
    pub(crate) max_rd_atomic: Option<Field<u32>>,
    pub(crate) max_dest_rd_atomic: Option<Field<u32>>,
    pub(crate) rate_limit: Option<Field<u32>>,
}

impl RawAttributes {
    pub(crate) fn read(reader: &mut Reader<'_>) -> RawAttributes {
        RawAttributes {
            traffic_class: reader.optional_number("traffic_class", 0..=TRAFFIC_CLASS_MAX),
            hop_limit: reader.optional_number("hop_limit", 1..=HOP_LIMIT_MAX),
            service_level: reader.optional_number("service_level", 0..=SERVICE_LEVEL_MAX),
            path_mtu: reader.optional_number("path_mtu", PATH_MTU_MIN..=PATH_MTU_MAX),
            pkey: reader.optional_number("pkey", 1..=PKEY_MAX),
            qkey: reader.optional_number("qkey", 0..=QKEY_MAX),
            max_rd_atomic: reader.optional_number("max_rd_atomic", 1..=RD_ATOMIC_MAX),
            max_dest_rd_atomic: reader.optional_number("max_dest_rd_atomic", 1..=RD_ATOMIC_MAX),
            rate_limit: reader.optional_number("rate_limit", 1..=u32::MAX),
        }
    }

    /// The plan's Q_Key, or the default one.
    pub(crate) fn qkey(&self) -> u32 {
        self.qkey.as_ref().map_or(QKEY, |field| field.value)
    }

    /// The attributes that the plan gives, and their places.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, Span)> {
        let all = [
            ("traffic_class", &self.traffic_class),
            ("hop_limit", &self.hop_limit),
            ("service_level", &self.service_level),
            ("path_mtu", &self.path_mtu),
            ("pkey", &self.pkey),
            ("qkey", &self.qkey),
            ("max_rd_atomic", &self.max_rd_atomic),
            ("max_dest_rd_atomic", &self.max_dest_rd_atomic),
            ("rate_limit", &self.rate_limit),
        ];
        all.into_iter().filter_map(|(key, field)| Some((key, field.as_ref()?.span)))
    }
}

/// An alternate path: a second path to the same peer, for when the first fails.
#[derive(Debug)]
pub(crate) struct RawAlternate {
    pub(crate) gid: Option<Field<String>>,
    pub(crate) lid: Option<Field<u32>>,
    pub(crate) port: Option<Field<u32>>,
    pub(crate) gid_index: Option<Field<u32>>,
    pub(crate) pkey: Option<Field<u32>>,
    pub(crate) timeout: Option<Field<u32>>,
}

impl RawAlternate {
    pub(crate) fn read(reader: &mut Reader<'_>) -> RawAlternate {
        RawAlternate {
            gid: reader.optional_text("alternate_gid"),
            lid: reader.optional_number("alternate_lid", 1..=LID_MAX),
            port: reader.optional_number("alternate_port", 1..=PORT_NUM_MAX),
            gid_index: reader.optional_number("alternate_gid_index", 0..=255),
            pkey: reader.optional_number("alternate_pkey", 1..=PKEY_MAX),
            timeout: reader.optional_number("alternate_timeout", 0..=TIMER_CODE_MAX),
        }
    }

    /// The keys that the plan gives, and their places; the GID's first.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, Span)> {
        let gid = self.gid.as_ref().map(|field| ("alternate_gid", field.span));
        let others = [
            ("alternate_lid", &self.lid),
            ("alternate_port", &self.port),
            ("alternate_gid_index", &self.gid_index),
            ("alternate_pkey", &self.pkey),
            ("alternate_timeout", &self.timeout),
        ];
        gid.into_iter().chain(others.into_iter().filter_map(|(key, field)| Some((key, field.as_ref()?.span))))
    }
}
