//! Messages that find no receive are reported: lost if their sender does not wait, and counted in
//! any case.

use crate::common::{assert_clean, one_lcore_with, registry, run};
use verbline_engine::Report;

const COUNT: u64 = 20_000;

/// A generator whose bursts are longer than the receive queue of the receiving port.
fn overrun(transport: &str, rx_depth_wr: u32) -> Report {
    let rest = format!(
        r#"
        [port.tx]
        lcore = "only"
        device = "nic0"
        transport = "{transport}"
        peer = "port.rx"
        tx_depth_wr = 256
        rx_depth_wr = 0
        [port.rx]
        lcore = "only"
        device = "nic0"
        pool = "p"
        transport = "{transport}"
        peer = "port.tx"
        rx_depth_wr = {rx_depth_wr}
        tx_depth_wr = 0
        next = "stage.sink"
        [stage.gen]
        use = "generator"
        lcore = "only"
        pool = "p"
        out = {{ out = "port.tx" }}
        params = {{ count = {COUNT}, size_bytes = 64, polite = true }}
        [stage.sink]
        use = "sink"
        lcore = "only"
        "#
    );
    let report = run(&registry(), &one_lcore_with("poll", [4096, 256], &rest)).unwrap();
    assert_clean(&report);
    report
}

#[test]
fn one_lcore_every_message_that_was_lost_is_counted_where_it_was() {
    for transport in ["uc", "ud"] {
        let report = overrun(transport, 4);
        let (tx, rx) = (report.port("tx").unwrap(), report.port("rx").unwrap());
        let lost = rx.rx_out_of_buffer.expect("the software RNIC counts");
        assert_eq!((tx.tx_packets, rx.rx_packets + lost), (COUNT, COUNT), "{report:#?}");
        assert!(lost > 0, "{report:#?}");
        assert_eq!((rx.lost_messages(), rx.transport), (lost, transport));
        assert_eq!(tx.rx_out_of_buffer, Some(0));
        let warnings = report.warnings();
        let warning = warnings.iter().find(|warning| warning.code == "messages-lost").expect("it says so");
        assert!(warning.message.contains(&format!("port rx has lost {lost} messages")), "{warning}");
    }
}

#[test]
fn one_lcore_on_rc_the_sender_waits_and_nothing_is_lost() {
    let report = overrun("rc", 4);
    let rx = report.port("rx").unwrap();
    assert_eq!(rx.rx_packets, COUNT, "{report:#?}");
    assert!(rx.rx_out_of_buffer.is_some_and(|waited| waited > 0), "{rx:?}");
    assert_eq!(rx.lost_messages(), 0);
    assert!(report.warnings().iter().all(|warning| warning.code != "messages-lost"));
}

#[test]
fn one_lcore_with_receives_enough_nothing_is_counted() {
    let report = overrun("ud", 1024);
    let rx = report.port("rx").unwrap();
    assert_eq!((rx.rx_packets, rx.rx_out_of_buffer), (COUNT, Some(0)), "{report:#?}");
}
