//! The protocol of a control socket: requests and answers, one JSON object per line.
//!
//! ```
//! use verbline_operate::protocol::{Ask, Request};
//!
//! let request: Request = r#"{"verbline":1,"id":7,"ask":"report"}"#.parse().unwrap();
//! assert_eq!((request.id, request.ask), (Some(7), Ask::Report));
//! let refusal = r#"{"verbline":2,"ask":"report"}"#.parse::<Request>().unwrap_err();
//! assert_eq!(refusal.code, "version");
//! ```

use std::num::NonZeroU32;
use std::str::FromStr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::asks::{CaptureAsk, TraceAsk};

/// The version of the protocol. It rises when a request or a key of an answer is removed or changes
/// its meaning, but not when one is added.
pub const VERSION: u32 = 1;

/// Bytes of the longest request, without its newline.
pub const REQUEST_BYTES_MAX: usize = 1024;

/// The requests of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ask {
    /// The run's identity and state: [`Hello`].
    Hello,
    /// The run's report so far, as `docs/report.schema.json` describes it.
    Report,
    /// The plan's lcores, stages, ports and rings, and the edges between them.
    Graph,
    /// Copies of the packets at the points in [`CaptureAsk`]. The answer is a line, and behind it a
    /// file in the format pcapng, until the client closes its sending half.
    Capture,
    /// The activity of the run's lcores, and the way of each packet, as [`TraceAsk`] says. The
    /// answer is a line, and behind it events of 16 bytes, until the client closes its sending
    /// half.
    Trace,
    /// The slowest packets of the run's last minute, if its plan keeps them, as a
    /// [`Kept`](crate::trace::kept::Kept).
    Kept,
    /// The filter of the run's log, which [`Request::log`] changes.
    Log,
}

impl Ask {
    /// All requests.
    pub const ALL: [Ask; 7] = [Ask::Hello, Ask::Report, Ask::Graph, Ask::Capture, Ask::Trace, Ask::Kept, Ask::Log];

    /// The name of the request, and the key of its answer.
    pub fn word(self) -> &'static str {
        match self {
            Ask::Hello => "hello",
            Ask::Report => "report",
            Ask::Graph => "graph",
            Ask::Capture => "capture",
            Ask::Trace => "trace",
            Ask::Kept => "kept",
            Ask::Log => "log",
        }
    }

    fn of(word: &str) -> Option<Ask> {
        Ask::ALL.into_iter().find(|ask| ask.word() == word)
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Request {
    /// [`VERSION`].
    pub verbline: u32,
    /// Comes back with the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The kind of request.
    pub ask: Ask,
    /// The parameters of a capture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<CaptureAsk>,
    /// The parameters of a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceAsk>,
    /// The new filter of the log, for [`Ask::Log`]: `debug`, or by part
    /// `warn,verbline_engine=debug`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// The reason why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// A stable name: `malformed`, `version`, `unknown-ask`, `too-long`, `starting`, `over`,
    /// `busy`, `invalid` or `forbidden`.
    pub code: String,
    /// The fault, with the value, and the remedy.
    pub message: String,
}

impl Refusal {
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Refusal {
        Refusal { code: code.to_owned(), message: message.into() }
    }
}

/// One JSON object, without its newline.
impl FromStr for Request {
    type Err = Refusal;

    fn from_str(line: &str) -> Result<Request, Refusal> {
        let malformed = |why: String| {
            let example = r#"{"verbline":1,"ask":"hello"}"#;
            Refusal::new("malformed", format!("{why}; a request is a JSON object on one line, e.g. {example}"))
        };
        let value: Value = serde_json::from_str(line).map_err(|error| malformed(error.to_string()))?;
        let Value::Object(mut keys) = value else { return Err(malformed("this is no object".to_owned())) };
        let mut number = |key: &str| match keys.remove(key) {
            None => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) => Ok(Some(number)),
                None => Err(malformed(format!("`{key}` is no unsigned number"))),
            },
        };
        let id = number("id")?;
        let version = number("verbline")?.ok_or_else(|| malformed("`verbline` is missing".to_owned()))?;
        if version != u64::from(VERSION) {
            let message = format!("the client speaks version {version} of the protocol, this run version {VERSION}");
            return Err(Refusal::new("version", format!("{message}; take the client that came with the run")));
        }
        let ask = match keys.remove("ask") {
            Some(Value::String(word)) => word,
            Some(_) => return Err(malformed("`ask` is no string".to_owned())),
            None => return Err(malformed("`ask` is missing".to_owned())),
        };
        // The parameters are under the same key as the request.
        let mut of_what = |asked: Ask| (ask == asked.word()).then(|| keys.remove(asked.word())).flatten();
        let capture = read(Ask::Capture, of_what(Ask::Capture)).map_err(malformed)?;
        let trace = read(Ask::Trace, of_what(Ask::Trace)).map_err(malformed)?;
        let log = match of_what(Ask::Log) {
            None => None,
            Some(Value::String(filter)) => Some(filter),
            Some(_) => return Err(malformed("`log` is no string".to_owned())),
        };
        // Keys that a later client adds must not be misunderstood by this run.
        if let Some(key) = keys.keys().next() {
            return Err(malformed(format!("the key {key:?} is unknown")));
        }
        let words = || Ask::ALL.map(Ask::word).join(", ");
        let ask = Ask::of(&ask).ok_or_else(|| {
            Refusal::new("unknown-ask", format!("{ask:?} can't be asked; what can be is {}", words()))
        })?;
        Ok(Request { verbline: VERSION, id, ask, capture, trace, log })
    }
}

/// Reads the parameters of a request, an object. Returns the fault if they are wrong.
fn read<T: DeserializeOwned>(ask: Ask, of_what: Option<Value>) -> Result<Option<T>, String> {
    match of_what {
        None => Ok(None),
        Some(object @ Value::Object(_)) => match serde_json::from_value(object) {
            Ok(read) => Ok(Some(read)),
            Err(error) => Err(format!("`{}` can't be read: {error}", ask.word())),
        },
        Some(_) => Err(format!("`{}` is no object", ask.word())),
    }
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It connects its ports; its lcores don't run yet.
    Starting,
    /// Its lcores run.
    Running,
    /// It drains, or has ended.
    Stopping,
}

/// The identity and state of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The app.
    pub app: String,
    /// The plan's name.
    pub plan: String,
    /// Its process number.
    pub pid: u32,
    /// Verbline's version.
    pub version: String,
    /// When it began, in milliseconds since 1970.
    pub since_unix_ms: u64,
    /// Its current state.
    pub state: State,
}

/// An answer, as a client reads it.
#[derive(Clone, Debug, Deserialize)]
pub struct Answer {
    /// [`VERSION`].
    pub verbline: u32,
    /// The number of the request.
    pub id: Option<u64>,
    /// The content.
    #[serde(flatten)]
    pub body: Body,
}

/// The content of an answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Body {
    /// To [`Ask::Hello`].
    Hello(Hello),
    /// To [`Ask::Report`].
    Report(Value),
    /// To [`Ask::Graph`].
    Graph(Value),
    /// To [`Ask::Capture`]; bytes other than lines follow.
    Capture(CaptureHead),
    /// To [`Ask::Trace`]; bytes other than lines follow.
    Trace(TraceHead),
    /// To [`Ask::Kept`].
    Kept(Value),
    /// To [`Ask::Log`].
    Log(String),
    /// The request was refused.
    Error(Refusal),
}

/// The head of a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureHead {
    /// The capture points: the interfaces of the file, in order.
    pub points: Vec<String>,
}

/// The head of a trace: the names behind the numbers in its events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceHead {
    /// The names of the lcores.
    pub lcores: Vec<String>,
    /// The names of the places.
    pub places: Vec<TraceHeadPlace>,
    /// Records one millisecond in this many, and one whenever an lcore is late; without it
    /// everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_in: Option<NonZeroU32>,
}

/// A place that events refer to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceHeadPlace {
    /// `stage.NAME`, `port.NAME`, `ring.NAME` or `injector.NAME`.
    pub name: String,
    /// The lcore that runs the stage, owns the port, or empties the ring, as an index into
    /// [`TraceHead::lcores`].
    pub lcore: usize,
}

/// The initial room of each answer. Reports get longer as a run lasts: without it, the heap of the
/// answering thread would get a hole of each size that an answer had.
pub(crate) const ANSWER_BYTES: usize = 64 << 10;

/// Makes an answer's line out of `body`, which is JSON, in the same buffer. A second buffer of that
/// size would exceed the memory that glibc leaves with the thread (M_TRIM_THRESHOLD, mallopt(3)):
/// it would be given back, and touched again, with each answer.
pub(crate) fn line(id: Option<u64>, word: &str, mut body: String) -> Vec<u8> {
    let id = id.map_or(String::new(), |id| format!(r#""id":{id},"#));
    body.insert_str(0, &format!(r#"{{"verbline":{VERSION},{id}"{word}":"#));
    body.push_str("}\n");
    body.into_bytes()
}

/// An answer as JSON.
pub(crate) fn json(answer: &impl Serialize) -> serde_json::Result<String> {
    let mut text = Vec::with_capacity(ANSWER_BYTES);
    serde_json::to_writer(&mut text, answer)?;
    String::from_utf8(text).map_err(serde::ser::Error::custom)
}

/// A refusal as a line.
pub(crate) fn refusal(id: Option<u64>, refusal: &Refusal) -> Vec<u8> {
    line(id, "error", serde_json::json!(refusal).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asks::FilterAsk;

    #[test]
    fn what_is_no_request_is_refused_with_what_is_wrong() {
        let refused = |line: &str| line.parse::<Request>().unwrap_err();
        for (line, code, says) in [
            ("", "malformed", "EOF"),
            ("[]", "malformed", "no object"),
            (r#"{"ask":"hello"}"#, "malformed", "`verbline` is missing"),
            (r#"{"verbline":-1,"ask":"hello"}"#, "malformed", "no unsigned number"),
            (r#"{"verbline":1}"#, "malformed", "`ask` is missing"),
            (r#"{"verbline":1,"ask":7}"#, "malformed", "no string"),
            (r#"{"verbline":1,"ask":"hello","more":1}"#, "malformed", "\"more\" is unknown"),
            (r#"{"verbline":9,"ask":"dance"}"#, "version", "version 9"),
            (r#"{"verbline":1,"ask":"dance"}"#, "unknown-ask", "hello, report, graph, capture, trace, kept, log"),
            (r#"{"verbline":1,"ask":"hello","capture":{}}"#, "malformed", "\"capture\" is unknown"),
            (r#"{"verbline":1,"ask":"capture","trace":{}}"#, "malformed", "\"trace\" is unknown"),
            (r#"{"verbline":1,"ask":"capture","capture":[]}"#, "malformed", "`capture` is no object"),
            (r#"{"verbline":1,"ask":"trace","trace":{"at":"x"}}"#, "malformed", "unknown field `at`"),
            (r#"{"verbline":1,"ask":"kept","trace":{}}"#, "malformed", "\"trace\" is unknown"),
            (r#"{"verbline":1,"ask":"hello","log":"debug"}"#, "malformed", "\"log\" is unknown"),
            (r#"{"verbline":1,"ask":"log","log":7}"#, "malformed", "`log` is no string"),
            (r#"{"verbline":1,"ask":"capture","capture":{"snap":1}}"#, "malformed", "unknown field `snap`"),
        ] {
            let refusal = refused(line);
            assert!(refusal.code == code && refusal.message.contains(says), "{line}: {refusal:?}");
        }
    }

    #[test]
    fn requests_and_answers_are_read_as_they_were_written() {
        for ask in Ask::ALL {
            let capture =
                (ask == Ask::Capture).then(|| CaptureAsk { at: vec!["port.in".into()], ..CaptureAsk::default() });
            let filter = Some(FilterAsk { offset: 4, hex: "0800".into() });
            let trace = (ask == Ask::Trace).then_some(TraceAsk { filter, one_in: NonZeroU32::new(32) });
            let log = (ask == Ask::Log).then(|| "debug".to_owned());
            let request = Request { verbline: VERSION, id: Some(3), ask, capture, trace, log };
            assert_eq!(serde_json::to_string(&request).unwrap().parse(), Ok(request));
        }
        let answer = |line: Vec<u8>| serde_json::from_slice::<Answer>(&line).unwrap();
        let read = answer(line(Some(7), "report", "{}".into()));
        assert!(read.id == Some(7) && matches!(read.body, Body::Report(_)));
        let read = answer(refusal(None, &Refusal::new("busy", "full")));
        assert!(matches!(read.body, Body::Error(why) if why.code == "busy") && read.id.is_none());
    }
}
