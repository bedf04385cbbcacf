//! The message between the thread, the lcore and the market: an order, and the client to answer.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Bytes of a message.
pub const BYTES: usize = 15;

/// An order, or its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub client: SocketAddrV4,
    pub order: u32,
    pub quantity: u32,
    pub is_filled: bool,
}

impl Message {
    /// Parses an order as a client writes it: `NUMBER QUANTITY`.
    pub fn asked(client: SocketAddrV4, text: &str) -> Option<Message> {
        let (order, quantity) = text.trim().split_once(' ')?;
        Some(Message { client, order: order.parse().ok()?, quantity: quantity.parse().ok()?, is_filled: false })
    }

    pub fn to_bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..4].copy_from_slice(&self.client.ip().octets());
        bytes[4..6].copy_from_slice(&self.client.port().to_be_bytes());
        bytes[6..10].copy_from_slice(&self.order.to_be_bytes());
        bytes[10..14].copy_from_slice(&self.quantity.to_be_bytes());
        bytes[14] = self.is_filled.into();
        bytes
    }

    /// `None`: these bytes are not a message.
    pub fn of_bytes(bytes: &[u8]) -> Option<Message> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let [a, b, c, d, port_0, port_1, order @ .., is_filled] = *bytes;
        let [o0, o1, o2, o3, q0, q1, q2, q3] = order;
        Some(Message {
            client: SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([port_0, port_1])),
            order: u32::from_be_bytes([o0, o1, o2, o3]),
            quantity: u32::from_be_bytes([q0, q1, q2, q3]),
            is_filled: is_filled == 1,
        })
    }
}
