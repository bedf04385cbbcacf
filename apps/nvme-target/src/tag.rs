//! Tags of operations, which tell the stage what a completion is of.

/// The purpose of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// A response, or data out of a packet: its completion needs no action.
    Response,
    /// READ of the host's data, for the command at this place.
    Fetch(u32),
    /// WRITE out of the memory of the namespace at this place; it holds a use of the namespace.
    Blocks(u16),
    /// The response behind blocks that the device checks through this signature key.
    Signed(u16),
}

const KIND_SHIFT: u32 = 32;

impl Tag {
    pub(crate) fn to_u64(self) -> u64 {
        let (kind, value) = match self {
            Tag::Response => (0, 0),
            Tag::Fetch(place) => (1, place),
            Tag::Blocks(place) => (2, place.into()),
            Tag::Signed(key) => (3, key.into()),
        };
        kind << KIND_SHIFT | u64::from(value)
    }

    pub(crate) fn from_u64(tag: u64) -> Tag {
        let value = tag as u32;
        match tag >> KIND_SHIFT {
            1 => Tag::Fetch(value),
            2 => Tag::Blocks(value as u16),
            3 => Tag::Signed(value as u16),
            _ => Tag::Response,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_comes_back_as_it_was() {
        for tag in [Tag::Response, Tag::Fetch(0), Tag::Fetch(u32::MAX), Tag::Blocks(u16::MAX), Tag::Signed(0)] {
            assert_eq!(Tag::from_u64(tag.to_u64()), tag);
        }
    }
}
