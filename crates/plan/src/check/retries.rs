//! Checks that the keys of a reliable connection's retries are given where there is one.

use crate::choices::{Transport, transport_word};
use crate::diag::sink::Sink;
use crate::read::raw_port::RawPort;

pub(crate) fn check(port: &RawPort, sink: &mut Sink) {
    let Some(transport) = port.transport.as_ref().filter(|transport| transport.value != Transport::Rc) else { return };
    let word = transport_word(transport.value);
    for (key, span) in port.retries.given() {
        sink.error("rc-only-key", span, format!("`{key}` is for RC; port.{} is {word}", port.head.name))
            .related(transport.span, "its transport")
            .note(format!("{word} sends nothing again: what is lost is lost"))
            .help("remove it, or write `transport = \"rc\"`");
    }
}
