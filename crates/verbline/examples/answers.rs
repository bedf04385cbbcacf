//! A datagram server that knows no peers in advance, and answers every sender.
//!
//! Three clients send questions to a multicast group by UD. The server has joined it, and its port
//! has places for senders (`senders_max`): a packet carries the handle of its sender, so that an
//! echo goes to that sender alone. The address handle of a new sender is made beside the lcore;
//! packets to it wait until then.

use std::time::Duration;

use verbline::engine::Counter;
use verbline::prelude::*;

const PLAN: &str = r#"
name = "answers"

[device.nic]
provider = "soft"
name = "soft0"

[pool.packets]
device = "nic"
packets = 4096
data_bytes = 256

[lcore.main]
cpu = "allowed:0"

[port.server]
lcore = "main"
device = "nic"
pool = "packets"
transport = "ud"
join = ["239.9.9.9"]
senders_max = 16            # senders that it can answer at once
rx_depth_wr = 128
tx_depth_wr = 64
next = "stage.server"

[stage.server]
use = "echo"
lcore = "main"
out = { answers = "port.server" }
"#;

/// A client and its port.
fn client(number: u8) -> String {
    format!(
        r#"
[port.client{number}]
lcore = "main"
device = "nic"
pool = "packets"
transport = "ud"
send_to = "239.9.9.9"
rx_depth_wr = 16
tx_depth_wr = 16
next = "stage.client{number}"

[stage.client{number}]
use = "client"
lcore = "main"
pool = "packets"
out = {{ questions = "port.client{number}" }}
params = {{ number = {number} }}
"#
    )
}

const OUT: OutId = OutId(0);
const QUESTIONS: u64 = 100;

struct Echo;

impl Stage for Echo {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        out.send_batch(OUT, input);
    }
}

/// Asks one question after the other, each after the answer to the last.
struct Client {
    number: u8,
    is_asking: bool,
    answered: Counter,
}

impl Stage for Client {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        for answer in input.drain_front(input.len()) {
            assert_eq!(answer.data(), [self.number; 32], "an answer to somebody else");
            self.answered.add(1);
            self.is_asking = false;
        }
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.answered.value() == QUESTIONS {
            return Next::Done;
        }
        if !self.is_asking
            && let Some(mut question) = out.alloc()
        {
            self.is_asking = question.fill(&[self.number; 32]) && out.send(OUT, question);
        }
        Next::Idle
    }
}

#[derive(serde::Deserialize)]
struct Params {
    number: u8,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _log = verbline::cli::log_to_stderr();
    let mut registry = Registry::new("answers");
    let echo = StageSpec { outputs: &["answers"], summary: "answers", ..StageSpec::default() };
    registry.stage("echo", echo, |_| Ok(Box::new(Echo)));
    let asks = StageSpec { outputs: &["questions"], source: true, summary: "asks", ..StageSpec::default() };
    registry.stage("client", asks, |stage| {
        let Params { number } = stage.params()?;
        Ok(Box::new(Client { number, is_asking: false, answered: stage.counter("answered") }))
    });

    let text = PLAN.to_owned() + &(1..=3).map(client).collect::<String>();
    let plan = Loader::new(registry.catalog(), Machine::detect()).load_str("answers.toml", text.as_str())?;
    eprint!("{}", plan.warnings());
    let running = Runtime::build(&plan, &registry)?.start()?;
    running.wait(Some(Duration::from_secs(5)));
    let report = running.stop()?;
    for stage in report.stages.iter().filter(|stage| stage.kind == "client") {
        assert_eq!(stage.counter("answered"), Some(QUESTIONS), "{}", stage.name);
    }
    assert_eq!(report.packets.held, 0);
    println!("three clients, {QUESTIONS} answers each");
    Ok(())
}
