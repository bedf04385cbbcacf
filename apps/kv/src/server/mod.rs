//! The server's stages: a router that finds the shard of a request, and the shards.

mod route;
mod shard;

use verbline::prelude::*;

/// Registers both kinds of stage.
pub(crate) fn register(registry: &mut Registry) {
    route::register(registry);
    shard::register(registry);
}

#[cfg(test)]
mod tests {
    use verbline::testing::StageTest;
    use verbline_tests::root;

    use crate::KeyValue;
    use crate::protocol::{Opcode, Reply, Request, Status};

    use super::*;

    /// A stage of the server of one lcore.
    fn stage(name: &str) -> StageTest {
        let mut registry = Registry::new("kv");
        KeyValue::default().register(&mut registry);
        let loader = Loader::new(registry.catalog(), Machine::detect()).sets([r#"device.nic0={provider="soft"}"#]);
        let plan = loader.load_path(root().join("tests/plans/kv-server.toml"));
        let plan = plan.unwrap_or_else(|faults| panic!("{faults}"));
        StageTest::open(&plan, &registry, name).unwrap_or_else(|error| panic!("{error}"))
    }

    fn request(opcode: Opcode, id: u64, key: &[u8], value: &[u8]) -> Vec<u8> {
        let header = Request::header(opcode, 0, key.len() as u16, value.len() as u32, id);
        [&header, key, value].concat()
    }

    #[test]
    fn every_request_is_answered_to_its_client_and_what_is_none_is_dropped() {
        let mut shard = stage("shard0");
        let client = shard.connect("server");
        let requests = [
            request(Opcode::Put, 1, b"key", b"value"),
            request(Opcode::Get, 2, b"key", b""),
            request(Opcode::Delete, 3, b"key", b""),
            request(Opcode::Get, 4, b"key", b""),
            request(Opcode::Put, 5, &[7; 17], b"too long a key"),
            b"no request".to_vec(),
        ];
        let packets = requests.map(|bytes| shard.packet_over(client, &bytes));
        shard.process(packets);
        let replies = shard.sent("reply");
        let read = replies.iter().map(|packet| {
            let reply = Reply::read(packet.data()).expect("a reply");
            (packet.connection(), reply.id, reply.status, reply.value)
        });
        let expected: [(_, _, &[u8]); 5] = [
            (1, Status::Ok, b""),
            (2, Status::Ok, b"value"),
            (3, Status::Ok, b""),
            (4, Status::NotFound, b""),
            (5, Status::TooLong, b""),
        ];
        assert!(read.eq(expected.map(|(id, status, value)| (Some(client), id, status, value))), "{replies:?}");
        drop(replies);
        let report = shard.finish();
        let counters = ["gets", "puts", "deletes", "refused", "keys"];
        let counted = report.stage("shard0").map(|stage| counters.map(|name| stage.counter(name)));
        assert_eq!(counted, Some([2, 2, 1, 1, 0].map(Some)));
        assert_eq!((report.dropped("malformed"), report.packets.held), (1, 0));
        // Regression: a server to which only another app's peers came said nothing of them.
        let told = KeyValue::default().outcome(&report);
        assert!(told.text.starts_with("1 messages were no requests") && told.failures.is_empty(), "{}", told.text);
    }

    #[test]
    fn the_router_sends_all_requests_of_a_key_to_one_shard() {
        let mut route = stage("route");
        let keys = (0..200_u64).map(|key| key.to_le_bytes());
        let packets: Vec<_> = keys
            .flat_map(|key| [Opcode::Put, Opcode::Get].map(|opcode| request(opcode, 0, &key, b"")))
            .map(|bytes| route.packet("port.server", &bytes))
            .collect();
        route.process(packets);
        let shards = ["stage.shard0", "stage.shard1"].map(|shard| route.sent_to(shard));
        for shard in &shards {
            assert!((100..300).contains(&shard.len()), "{}", shard.len());
            let (pairs, []) = shard.as_chunks::<2>() else { panic!("a request of a key is elsewhere") };
            let key = |packet: &Packet| Request::read(packet.data()).expect("a request").key.to_vec();
            assert!(pairs.iter().all(|[put, get]| key(put) == key(get)));
        }
    }
}
