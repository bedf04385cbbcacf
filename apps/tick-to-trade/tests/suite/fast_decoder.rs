//! The FAST decoder against the crate `fastlib` on the recording, and against corrupt bytes.

use fastlib::{MessageFactory, Value};
use proptest::prelude::*;
use tick_to_trade::fast::{
    Action, Cause, Decimal, Decoder, Entry, EntryType, Message, MoexError, MoexFeed, Recording, Templates,
};

/// Fills the same struct from `fastlib`'s callbacks.
struct Oracle {
    message: Message,
    in_entry: bool,
}

impl Oracle {
    fn new() -> Self {
        Self { message: Message::new(), in_entry: false }
    }
}

impl MessageFactory for Oracle {
    fn start_template(&mut self, id: u32, _: &str) {
        self.message.template_id = id;
    }
    fn stop_template(&mut self) {}
    fn set_value(&mut self, id: u32, _: &str, value: Option<Value>) {
        let Some(value) = value else { return };
        let m = &mut self.message;
        let entry = m.entries.last_mut().filter(|_| self.in_entry);
        match (id, value, entry) {
            (34, Value::UInt32(v), None) => m.msg_seq_num = v,
            (52, Value::UInt64(v), None) => m.sending_time = v,
            (83, Value::UInt32(v), None) => m.rpt_seq = v,
            (369, Value::UInt32(v), None) => m.last_msg_seq_num_processed = v,
            (48, Value::UInt64(v), None) => m.security_id = Some(v),
            (36, Value::UInt32(v), None) => m.new_seq_num = v,
            (340, Value::UInt32(v), None) => m.session_status = v,
            (279, Value::UInt32(v), Some(e)) => {
                e.action =
                    [Action::New, Action::Change, Action::Delete].get(v as usize).copied().unwrap_or(Action::Other(v))
            }
            (269, Value::ASCIIString(v), Some(e)) => {
                e.entry_type = match v.as_str() {
                    "0" => EntryType::Bid,
                    "1" => EntryType::Offer,
                    "2" => EntryType::Trade,
                    "J" => EntryType::EmptyBook,
                    other => EntryType::Other(other.bytes().next().unwrap_or(0)),
                }
            }
            (48, Value::UInt64(v), Some(e)) => e.security_id = Some(v),
            (83, Value::UInt32(v), Some(e)) => e.rpt_seq = v,
            (264, Value::UInt32(v), Some(e)) => e.market_depth = Some(v),
            (1023, Value::UInt32(v), Some(e)) => e.level = Some(v),
            (270, Value::Decimal(v), Some(e)) => e.price = Some(Decimal { mantissa: v.mantissa, exponent: v.exponent }),
            (271, Value::Int64(v), Some(e)) => e.size = Some(v),
            (273, Value::UInt32(v), Some(e)) => e.time = v,
            (5842, Value::UInt32(v), Some(e)) => e.session_id = Some(v),
            _ => {}
        }
    }
    fn start_sequence(&mut self, _: u32, _: &str, _: u32) {}
    fn start_sequence_item(&mut self, _: u32) {
        self.in_entry = true;
        self.message.entries.push(Entry::default());
    }
    fn stop_sequence_item(&mut self) {
        self.in_entry = false;
    }
    fn stop_sequence(&mut self) {}
    fn start_group(&mut self, _: &str) {}
    fn stop_group(&mut self) {}
    fn start_template_ref(&mut self, _: &str, _: bool) {}
    fn stop_template_ref(&mut self) {}
}

#[test]
fn every_field_of_every_message_is_that_of_fastlib() {
    let Some(feed) = crate::common::moex() else { return };
    let mut decoder = feed.decoder();
    let mut other = fastlib::Decoder::new_from_xml(feed.templates_xml()).unwrap();
    let mut message = Message::new();
    let mut compared = 0;
    for recording in feed.increments.iter().chain([&feed.snapshots]) {
        for (datagram, bytes) in recording.iter() {
            decoder.decode(bytes, &mut message).unwrap();
            other.reset();
            let reset = other.decode_buffer(bytes, &mut Oracle::new()).unwrap() as usize;
            let mut oracle = Oracle::new();
            other.decode_slice(&bytes[reset..], &mut oracle).unwrap();
            oracle.message.kind = datagram.kind;
            assert_eq!(message, oracle.message);
            assert_eq!(message.entries.capacity(), tick_to_trade::fast::ENTRIES_MAX);
            compared += 1;
        }
    }
    assert_eq!(compared, 8_101 + 8_088 + 7_848 + 733 + 733);
}

fn xml() -> &'static str {
    // The exchange's templates 74 and 120, shortened.
    r#"<templates xmlns="http://www.fixprotocol.org/ns/fast/td/1.1">
        <template name="Increment" id="74" dictionary="74">
            <string name="MessageType" id="35"><constant value="X"/></string>
            <uInt32 name="MsgSeqNum" id="34"><increment/></uInt32>
            <uInt64 name="SendingTime" id="52"><delta/></uInt64>
            <string name="Headline" id="148" charset="unicode" presence="optional"/>
            <sequence name="MDEntries">
                <length name="NoMDEntries" id="268"/>
                <uInt32 name="MDUpdateAction" id="279"><copy value="0"/></uInt32>
                <string name="MDEntryType" id="269"/>
                <uInt64 name="SecurityID" id="48" presence="optional"><delta/></uInt64>
                <decimal name="MDEntryPx" id="270" presence="optional"/>
                <int64 name="MDEntrySize" id="271" presence="optional"><delta/></int64>
            </sequence>
            <sequence name="Others" presence="optional">
                <length name="NoOthers" id="1"/><int32 name="O" id="2"/>
            </sequence>
        </template>
        <template name="Reset" id="120" xmlns:scp="http://www.fixprotocol.org/ns/fast/scp/1.1" scp:reset="yes"/>
    </templates>"#
}

fn decoder() -> Decoder {
    Decoder::new(Templates::from_xml(xml()).unwrap())
}

/// Reset; template 74, MsgSeqNum 5, SendingTime 9, no headline, one entry (new, bid, 7, 12 * 10^-1,
/// size 3), no others.
const GOOD: [u8; 16] = [0xc0, 0xf8, 0xe0, 0xca, 0x85, 0x89, 0x80, 0x81, 0x80, 0xb0, 0x88, 0xff, 0x8c, 0x84, 0x80, 0x80];

#[test]
fn a_message_by_hand() {
    let mut message = Message::new();
    decoder().decode(&GOOD[..15], &mut message).unwrap();
    assert_eq!((message.template_id, message.msg_seq_num, message.sending_time), (74, 5, 9));
    let entry = Entry {
        action: Action::New,
        entry_type: EntryType::Bid,
        security_id: Some(7),
        price: Some(Decimal { mantissa: 12, exponent: -1 }),
        size: Some(3),
        ..Entry::default()
    };
    assert_eq!(message.entries, [entry]);
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let mut message = Message::new();
    let mut decoder = decoder();
    let mut cause = |bytes: &[u8]| decoder.decode(bytes, &mut message).unwrap_err();
    assert_eq!(cause(&[]).cause, Cause::NoMessage);
    assert_eq!(cause(&GOOD[..2]).cause, Cause::NoMessage);
    assert_eq!(cause(&GOOD).cause, Cause::Trailing(1));
    assert_eq!(
        cause(&GOOD[..12]).to_string(),
        "byte 12, template 74, field 270: the bytes end within a field: the datagram or the file was cut"
    );
    assert_eq!(cause(&[0xc0, 0xf9]).cause, Cause::UnknownTemplate(121));
    assert_eq!(cause(&[0x80]).cause, Cause::NoTemplateId);
    // MsgSeqNum is not in the presence map and has no previous value.
    assert_eq!(cause(&[0xc0, 0xf8, 0xc0, 0xca]).cause, Cause::NoValue);
    // SendingTime below zero; MsgSeqNum beyond 32 bits; a million entries in no bytes.
    assert_eq!(cause(&[0xc0, 0xf8, 0xe0, 0xca, 0x85, 0xff]).cause, Cause::Overflow);
    assert_eq!(cause(&[0xc0, 0xf8, 0xe0, 0xca, 0x7f, 0x7f, 0x7f, 0x7f, 0xff]).cause, Cause::Overflow);
    assert_eq!(
        cause(&[0xc0, 0xf8, 0xe0, 0xca, 0x85, 0x89, 0x80, 0x3d, 0x09, 0xc0]).cause,
        Cause::TooManyItems(1_000_640)
    );
    // A headline of 2^62 bytes must not be allocated.
    let headline = [0xc0, 0xf8, 0xe0, 0xca, 0x85, 0x89, 0x40, 0, 0, 0, 0, 0, 0, 0, 0x80];
    assert_eq!(cause(&headline).cause, Cause::Truncated);
}

#[test]
fn a_loss_harms_no_other_datagram() {
    let mut decoder = decoder();
    let mut message = Message::new();
    for cut in 0..15 {
        decoder.decode(&GOOD[..cut], &mut message).unwrap_err();
        decoder.decode(&GOOD[..15], &mut message).unwrap();
        assert_eq!((message.msg_seq_num, message.sending_time, message.entries.len()), (5, 9, 1));
    }
}

#[test]
fn absent_and_cut_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = MoexFeed::open(dir.path()).unwrap_err();
    assert!(matches!(&error, MoexError::Absent { missing, .. } if missing.len() == 5));
    assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}");

    let config = r#"<config><books><book symbol="RIU3"><id value="7"/></book></books></config>"#;
    std::fs::write(dir.path().join("micex_templates.xml"), xml()).unwrap();
    std::fs::write(dir.path().join("micex_config.xml"), config).unwrap();
    for file in ["micex_increment_b.dat", "micex_snapshot.dat"] {
        std::fs::write(dir.path().join(file), GOOD[..15].repeat(3)).unwrap();
    }
    std::fs::write(dir.path().join("micex_increment_a.dat"), &GOOD[..15].repeat(3)[..40]).unwrap();
    let error = MoexFeed::open(dir.path()).unwrap_err();
    let MoexError::Decode { messages: 2, error, .. } = &error else { panic!("{error}") };
    assert_eq!((error.offset_bytes, &error.cause), (40, &Cause::Truncated));
    std::fs::write(dir.path().join("micex_increment_a.dat"), "").unwrap();
    let error = MoexFeed::open(dir.path()).unwrap_err();
    assert!(matches!(&error, MoexError::Empty { path } if path.ends_with("micex_increment_a.dat")), "{error}");
    std::fs::write(dir.path().join("micex_increment_a.dat"), GOOD[..15].repeat(2)).unwrap();
    let feed = MoexFeed::open(dir.path()).unwrap();
    assert_eq!((feed.increments[0].datagrams.len(), feed.snapshots.datagrams.len()), (2, 3));
    assert_eq!(feed.instruments[0].security_id, 7);
    std::fs::write(dir.path().join("micex_config.xml"), "<config><books><book symbol='X'/></books></config>").unwrap();
    assert!(matches!(MoexFeed::open(dir.path()), Err(MoexError::Config { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn corrupt_bytes_never_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..60),
        prefix in 0usize..16,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        // A valid start reaches deeper than noise.
        bytes.splice(0..0, GOOD[..prefix].iter().copied());
        for (at, value) in flips {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
        }
        let mut decoder = decoder();
        let mut message = Message::new();
        match decoder.decode(&bytes, &mut message) {
            Ok(()) => prop_assert_eq!(message.entries.capacity(), tick_to_trade::fast::ENTRIES_MAX),
            Err(error) => prop_assert!(error.offset_bytes <= bytes.len(), "{}", error),
        }
        let _ = decoder.peek_sequence(&bytes, &mut message);
        let _ = Recording::split(bytes, &mut decoder);
    }
}

#[test]
fn flipped_bits_of_the_recording_never_panic() {
    let Some(feed) = crate::common::moex() else { return };
    let mut decoder = feed.decoder();
    let mut message = Message::new();
    let mut refused = 0;
    for (i, (_, bytes)) in feed.increments[0].iter().chain(feed.snapshots.iter()).enumerate() {
        let mut bytes = bytes.to_vec();
        let at = i * 31 % bytes.len();
        bytes[at] ^= 1 << (i % 8);
        refused += usize::from(decoder.decode(&bytes, &mut message).is_err());
    }
    assert!(refused > 1_000, "{refused}");
}
