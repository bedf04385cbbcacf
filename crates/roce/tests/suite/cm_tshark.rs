//! Wireshark's dissector finds each field of our messages of connection management.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use verbline_roce::cm::{Connect, Mad, Message};
use verbline_roce::transport::Mtu;
use verbline_roce::wire::{Psn, Qpn, Route};

use crate::cm_wire::{datagram, mads, replies, requests};
use crate::sim::world::{address, addresses};
use crate::wire_tshark::dissected;

const MESSAGES: usize = 40;

/// Parses a field's number in any base.
fn number(text: &str) -> u64 {
    match (text, text.strip_prefix("0x")) {
        ("True", _) => 1,
        ("False", _) => 0,
        (_, Some(hex)) => u64::from_str_radix(hex, 16).unwrap_or_else(|_| panic!("{text}")),
        _ => text.parse().unwrap_or_else(|_| panic!("{text}")),
    }
}

fn generated<T: std::fmt::Debug>(strategy: impl Strategy<Value = T>) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    (0..MESSAGES).map(|_| strategy.new_tree(&mut runner).expect("a value").current()).collect()
}

fn route() -> Route {
    Route::new(addresses(0, 1), 1, 1)
}

/// Compares the numbers of each message, by the names of fields, with tshark's output.
fn check<T>(
    name: &str,
    values: &[T],
    fields: &[&str],
    write: impl Fn(&T) -> Message,
    expected: impl Fn(&T) -> Vec<u64>,
) {
    let datagrams: Vec<_> = values
        .iter()
        .map(|value| (route(), datagram(&Mad { transaction: 1, message: write(value) }, &route())))
        .collect();
    let names: Vec<String> = fields.iter().map(|field| format!("infiniband.cm.{name}.{field}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let Some(lines) = dissected(name, &datagrams, &names) else { return };
    for (value, line) in values.iter().zip(lines) {
        let found: Vec<u64> = line.iter().map(|text| number(text)).collect();
        for ((field, found), expected) in fields.iter().zip(found).zip(expected(value)) {
            assert_eq!(found, expected, "{field}");
        }
    }
}

/// All fields but the flow label and the rate, for which tshark reads other bits than the kernel.
#[test]
fn tshark_finds_the_fields_of_requests() {
    let fields = [
        "localcaguid",
        "localqpn",
        "responderres",
        "initdepth",
        "remoteresptout",
        "transpsvctype",
        "e2eflowctrl",
        "startpsn",
        "localresptout",
        "retrcount",
        "pkey",
        "pppmtu",
        "rnrretrcount",
        "maxcmretr",
        "srq",
        "prim_tfcclass",
        "prim_hoplim",
        "prim_sl",
        "prim_localacktout",
    ];
    check(
        "req",
        &generated(requests()),
        &fields,
        |request| Message::Request(*request),
        |request| {
            let path = &request.path;
            let small = |byte: u8| u64::from(byte);
            vec![
                request.ca_guid,
                request.qpn.number().into(),
                small(request.responder_resources),
                small(request.initiator_depth),
                small(request.remote_response_timeout),
                small(request.service_type),
                request.flow_control.into(),
                request.starting_psn.number().into(),
                small(request.local_response_timeout),
                small(request.retry_count),
                request.pkey.into(),
                small(request.mtu.code()),
                small(request.rnr_retry),
                small(request.cm_retries),
                request.shared_receives.into(),
                small(path.traffic_class),
                small(path.hop_limit),
                small(path.service_level),
                small(path.ack_timeout),
            ]
        },
    );
}

#[test]
fn tshark_finds_the_fields_of_replies() {
    let fields = [
        "remotecommid",
        "localqpn",
        "startpsn",
        "respres",
        "initdepth",
        "tgtackdelay",
        "e2eflowctrl",
        "rnrretrcount",
        "srq",
        "localcaguid",
    ];
    check(
        "rep",
        &generated(replies()),
        &fields,
        |reply| Message::Reply(*reply),
        |reply| {
            vec![
                reply.remote_id.into(),
                reply.qpn.number().into(),
                reply.starting_psn.number().into(),
                reply.responder_resources.into(),
                reply.initiator_depth.into(),
                reply.ack_delay.into(),
                reply.flow_control.into(),
                reply.rnr_retry.into(),
                reply.shared_receives.into(),
                reply.ca_guid,
            ]
        },
    );
}

#[test]
fn tshark_finds_ports_and_addresses_and_nothing_malformed() {
    let mut datagrams: Vec<_> = generated(mads()).iter().map(|mad| (route(), datagram(mad, &route()))).collect();
    let [from, to] = [0, 1].map(|host| address(host).into());
    let (qpn, psn) = (Qpn::new(9), Psn::new(7));
    let connect = Connect::new(from, to, 4420, qpn, psn, Mtu::B1024, b"x").expect("one family");
    datagrams.push((route(), datagram(&Mad { transaction: 1, message: Message::Request(connect.request) }, &route())));
    let fields = ["serviceid.dport", "ip_cm.sip4", "ip_cm.dip4"].map(|field| format!("infiniband.cm.req.{field}"));
    let fields = [&fields[0], &fields[1], &fields[2], "_ws.malformed"];
    let Some(lines) = dissected("mads", &datagrams, &fields) else { return };
    assert_eq!(lines[MESSAGES][..3], ["0x1144", "10.0.0.1", "10.0.0.2"]);
    assert!(lines.iter().all(|line| line[3].is_empty()), "{lines:?}");
}
