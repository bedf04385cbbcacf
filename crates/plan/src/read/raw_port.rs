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
use crate::read::reader::{Field, OneOrMore, Reader, TableHeader, table_of};
use crate::text::tree::Node;

raw_table! {
    RawPort head {
        lcore: Option<Field<String>> = Reader::text("lcore", "\"NAME\", the lcore that owns it"),
        device: Option<Field<String>> = Reader::text("device", "\"NAME\", the device that it is on"),
        pool: Option<Field<String>> = Reader::optional_text("pool"),
        transport: Option<Field<Transport>> = Reader::choice("transport", &Transport::WORDS),
        join: Vec<Field<String>> = Reader::texts("join", LISTED_MAX),
        join_key: Option<Span> = key_span("join"),
        send_to: OneOrMore = Reader::one_or_more("send_to", LISTED_MAX),
        senders_max: Field<u32> = Reader::number_or("senders_max", 0..=SENDERS_MAX, 0),
        peer: Option<Field<String>> = Reader::optional_text("peer"),
        listen: Option<Field<String>> = Reader::optional_text("listen"),
        connect: OneOrMore = Reader::one_or_more("connect", LISTED_MAX),
        connect_timeout: Field<Duration> = Reader::duration_or("connect_timeout", DURATION_MAX, CONNECT_TIMEOUT),
        reconnect: Field<bool> = Reader::flag_or("reconnect", true),
        shared: RawShared = RawShared::read(),
        rx_depth_wr: Field<u32> = depth("rx_depth_wr"),
        tx_depth_wr: Field<u32> = depth("tx_depth_wr"),
        ops_depth_wr: Field<u32> = depth("ops_depth_wr"),
        max_sge: Field<u32> = Reader::number_or("max_sge", 1..=SGE_MAX, 1),
        windows: Field<u32> = Reader::number_or("windows", 0..=WINDOWS_MAX, 0),
        signature_keys: Field<u32> = Reader::number_or("signature_keys", 0..=SIGNATURE_KEYS_MAX, 0),
        immediates: Field<bool> = Reader::flag_or("immediates", false),
        inline_bytes: Field<u32> = Reader::number_or("inline_bytes", 0..=1 << 16, INLINE_BYTES),
        signal_every_wr: Field<u32> = Reader::number_or("signal_every_wr", 1..=DEPTH_MAX, SIGNAL_EVERY_WR),
        solicited: Field<bool> = Reader::flag_or("solicited", false),
        send_options: Field<bool> = Reader::flag_or("send_options", false),
        sent: Option<Field<String>> = Reader::optional_text("sent"),
        retries: RawRetries = RawRetries::read(),
        attributes: RawAttributes = RawAttributes::read(),
        alternate: RawAlternate = RawAlternate::read(),
        timestamps: Field<bool> = Reader::flag_or("timestamps", true),
        next: Option<Field<String>> = Reader::optional_text("next"),
    }
}

raw_table! {
    /// The keys of many connections.
    RawShared {
        connections_max: Option<Field<u32>> = Reader::optional_number("connections_max", 1..=CONNECTIONS_MAX),
        connections: Option<Field<u32>> = Reader::optional_number("connections", 1..=CONNECTIONS_MAX),
        rx_shared_wr: Field<u32> = Reader::number_or("rx_shared_wr", 0..=SHARED_DEPTH_MAX, 0),
        tx_shared_wr: Option<Field<u32>> = Reader::optional_number("tx_shared_wr", 1..=CQ_DEPTH_MAX),
        ops_shared_wr: Option<Field<u32>> = Reader::optional_number("ops_shared_wr", 1..=CQ_DEPTH_MAX),
        listen_with: Option<Field<String>> = Reader::optional_text("listen_with"),
        placement: Field<Placement> = Reader::choice_or_first("placement", &Placement::WORDS),
        acceptor: Option<Field<String>> = Reader::optional_text("acceptor"),
        /// The place of its key, and the table.
        acceptor_params: Option<(Span, Node)> = read_params("acceptor_params", "port.NAME.acceptor_params"),
        private_data: Option<Field<String>> = Reader::optional_text("private_data"),
    }
}

raw_table! {
    given ""
    /// When a reliable connection retries, and when it gives up.
    RawRetries {
        timeout: Option<Field<u32>> = Reader::optional_number("timeout", 0..=TIMER_CODE_MAX),
        retry_cnt: Field<u32> = Reader::number_or("retry_cnt", 0..=RETRIES_MAX, RETRY_CNT),
        rnr_retry: Field<u32> = Reader::number_or("rnr_retry", 0..=RETRIES_MAX, RNR_RETRY),
        min_rnr_timer: Field<u32> = Reader::number_or("min_rnr_timer", 0..=TIMER_CODE_MAX, MIN_RNR_TIMER),
    }
}

raw_table! {
    given ""
    /// Attributes of its queue pairs, by their names in ibv_modify_qp(3). The plan does not decide
    /// about those that it leaves out.
    RawAttributes {
        traffic_class: Option<Field<u32>> = Reader::optional_number("traffic_class", 0..=TRAFFIC_CLASS_MAX),
        hop_limit: Option<Field<u32>> = Reader::optional_number("hop_limit", 1..=HOP_LIMIT_MAX),
        service_level: Option<Field<u32>> = Reader::optional_number("service_level", 0..=SERVICE_LEVEL_MAX),
        path_mtu: Option<Field<u32>> = Reader::optional_number("path_mtu", PATH_MTU_MIN..=PATH_MTU_MAX),
        pkey: Option<Field<u32>> = Reader::optional_number("pkey", 1..=PKEY_MAX),
        qkey: Option<Field<u32>> = Reader::optional_number("qkey", 0..=QKEY_MAX),
        max_rd_atomic: Option<Field<u32>> = Reader::optional_number("max_rd_atomic", 1..=RD_ATOMIC_MAX),
        max_dest_rd_atomic: Option<Field<u32>> = Reader::optional_number("max_dest_rd_atomic", 1..=RD_ATOMIC_MAX),
        rate_limit: Option<Field<u32>> = Reader::optional_number("rate_limit", 1..=u32::MAX),
    }
}

impl RawAttributes {
    /// The plan's Q_Key, or the default one.
    pub(crate) fn qkey(&self) -> u32 {
        self.qkey.as_ref().map_or(QKEY, |field| field.value)
    }
}

raw_table! {
    given "alternate_"
    /// An alternate path: a second path to the same peer, for when the first fails. The GID is
    /// first.
    RawAlternate {
        gid: Option<Field<String>> = Reader::optional_text("alternate_gid"),
        lid: Option<Field<u32>> = Reader::optional_number("alternate_lid", 1..=LID_MAX),
        port: Option<Field<u32>> = Reader::optional_number("alternate_port", 1..=PORT_NUM_MAX),
        gid_index: Option<Field<u32>> = Reader::optional_number("alternate_gid_index", 0..=255),
        pkey: Option<Field<u32>> = Reader::optional_number("alternate_pkey", 1..=PKEY_MAX),
        timeout: Option<Field<u32>> = Reader::optional_number("alternate_timeout", 0..=TIMER_CODE_MAX),
    }
}

fn key_span(reader: &mut Reader<'_>, key: &'static str) -> Option<Span> {
    reader.place(key).map(|entry| entry.key_span)
}

/// Reads a depth. A bad one counts as the greatest, so that the port does not look as if it lacked
/// a queue.
fn depth(reader: &mut Reader<'_>, key: &'static str) -> Field<u32> {
    let depth = reader.number_or(key, 0..=DEPTH_MAX, 0);
    match reader.place(key) {
        Some(entry) if !depth.given => Field { value: DEPTH_MAX, span: entry.node.span, given: true },
        _ => depth,
    }
}

/// Reads a table for the application. Returns the place of its key, and the table.
pub(crate) fn read_params(reader: &mut Reader<'_>, key: &'static str, path: &str) -> Option<(Span, Node)> {
    let entry = reader.table(key)?;
    table_of(entry, path, reader.sink)?;
    Some((entry.key_span, entry.node.clone()))
}
