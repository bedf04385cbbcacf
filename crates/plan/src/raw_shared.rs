//! The shape of the keys of many connections in the file.

use crate::choices::Placement;
use crate::limits::{CONNECTIONS_MAX, CQ_DEPTH_MAX, SHARED_DEPTH_MAX};
use crate::read::{Field, Reader, table_of};
use crate::source::Span;
use crate::tree::Node;

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
    /// Where its key stands, and the table.
    pub(crate) acceptor_params: Option<(Span, Node)>,
    pub(crate) private_data: Option<Field<String>>,
}

impl RawShared {
    pub(crate) fn read(reader: &mut Reader<'_>) -> RawShared {
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

fn read_params(reader: &mut Reader<'_>) -> Option<(Span, Node)> {
    let entry = reader.table("acceptor_params")?;
    table_of(entry, "port.NAME.acceptor_params", reader.sink)?;
    Some((entry.key_span, entry.node.clone()))
}
