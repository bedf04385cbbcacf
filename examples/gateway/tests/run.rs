//! The whole program: clients get answers, and an operator's `halt` ends the run, which accounts
//! for every packet.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

type Any = Box<dyn std::error::Error>;

#[test]
fn orders_are_filled_or_refused_and_a_word_ends_the_run() -> Result<(), Any> {
    // A port that is free now.
    let address = UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
    let listen = format!("gateway.listen={address}");
    let mut gateway = Command::new(env!("CARGO_BIN_EXE_gateway"));
    let gateway = gateway.args(["run", "plan.toml", "--for", "60s", "--json", "--set", &listen]);
    let gateway = gateway.stdout(Stdio::piped()).spawn()?;

    let client = UdpSocket::bind("127.0.0.1:0")?;
    client.connect(address)?;
    client.set_read_timeout(Some(Duration::from_millis(100)))?;
    // Until the program listens, nobody answers, or the kernel refuses at once.
    let first = (0..300).find_map(|_| {
        let answer = ask(&client, "1 100").ok();
        answer.is_none().then(|| std::thread::sleep(Duration::from_millis(50)));
        answer
    });
    assert_eq!(first.as_deref(), Some("1 filled"));
    // A repeated question is answered again.
    while client.recv(&mut [0; 64]).is_ok() {}
    client.set_read_timeout(Some(Duration::from_secs(10)))?;
    let answers = ["2 1000", "3 1001", "buy"].map(|order| ask(&client, order).unwrap_or_default());
    assert_eq!(answers, ["2 filled", "3 too large", "an order is: NUMBER QUANTITY"]);
    client.send(b"halt")?;

    let output = gateway.wait_with_output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let report: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!((&report["packets"]["held"], &report["drained"]), (&0.into(), &true.into()), "{report:#}");
    Ok(())
}

fn ask(client: &UdpSocket, order: &str) -> std::io::Result<String> {
    let mut bytes = [0; 64];
    client.send(order.as_bytes())?;
    let len = client.recv(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
}
