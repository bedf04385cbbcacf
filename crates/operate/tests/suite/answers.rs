//! A run's answers, at its socket and by HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use verbline_operate::change::Change;
use verbline_operate::client::{Client, ClientError};
use verbline_operate::protocol::State;

use crate::common::{PATIENCE, Served};

const METRICS: &str = "[metrics]\nlisten = \"127.0.0.1:0\"\n";

#[test]
fn a_run_says_who_it_is_and_what_it_does_from_its_start_to_its_end() {
    let (mut served, runtime) = Served::starting("");
    let mut client = Client::connect(&served.socket()).unwrap();
    let hello = client.hello().unwrap();
    assert_eq!((hello.app.as_str(), hello.plan.as_str(), hello.pid), ("rig", "rig", std::process::id()));
    assert_eq!(hello.state, State::Starting);
    assert!(matches!(client.report(), Err(ClientError::Refused(why)) if why.code == "starting"));

    served.run(runtime);
    assert_eq!(client.hello().unwrap().state, State::Running);
    let first = client.seen().unwrap();
    let deadline = Instant::now() + PATIENCE;
    let change = loop {
        std::thread::sleep(Duration::from_millis(60));
        let change = Change::between(&first, &client.seen().unwrap());
        let sink = &change.counts().stages[1];
        assert!(sink.name == "sink" && Instant::now() < deadline, "{sink:?}");
        if sink.packets_in > 0 {
            break change;
        }
    };
    let sink = &change.counts().stages[1];
    let over_ns = change.counts().elapsed_ns;
    assert!((50_000_000..20_000_000_000).contains(&over_ns), "{over_ns}");
    let expected = sink.packets_in as f64 * 1e9 / over_ns as f64;
    assert!((change.per_second(sink.packets_in) - expected).abs() < 1e-6);

    let report = served.running.take().unwrap().stop().unwrap();
    assert_eq!(report.packets.held, 0);
    assert_eq!(client.hello().unwrap().state, State::Stopping);
    assert!(matches!(client.report(), Err(ClientError::Refused(why)) if why.code == "over"));
    let path = served.socket();
    drop(served.operate);
    assert!(!path.exists());
    assert!(matches!(client.hello(), Err(ClientError::Unreachable { .. })));
}

#[test]
fn the_first_answer_is_there_within_a_tenth_of_a_second() {
    let served = Served::new("");
    // The shortest of ten: it measures the way itself, not other users of the CPUs.
    let took = (0..10).map(|_| {
        let from = Instant::now();
        Client::connect(&served.socket()).unwrap().seen().unwrap();
        from.elapsed()
    });
    let took = took.min().unwrap();
    assert!(took < Duration::from_millis(100), "{took:?}");
    served.assert_undisturbed();
}

#[test]
fn requests_may_come_in_pieces_and_many_at_once() {
    let served = Served::new("");
    let mut stream = UnixStream::connect(served.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    for piece in
        ["{\"verbline\":1,", "\"id\":1,\"ask\":\"hello\"}\n{\"verbline\":1,\"id\":2,\"ask\":\"graph\"}\nno", "nsense\n"]
    {
        stream.write_all(piece.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    let answers: Vec<serde_json::Value> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&answers[0]["id"], &answers[0]["hello"]["plan"]), (&1.into(), &"rig".into()));
    let edges = answers[1]["graph"]["edges"].as_array().unwrap();
    let leads = |from: &str, to: &str| edges.iter().any(|edge| edge["from"] == from && edge["to"] == to);
    assert!(leads("stage.source", "port.out") && leads("port.out", "port.in") && leads("port.in", "stage.sink"));
    assert_eq!(answers[2]["error"]["code"], "malformed");
    served.assert_undisturbed();
}

/// The answers fill its socket, so that one of them waits for the client. The request behind that
/// one is answered without further input from the client.
#[test]
fn requests_behind_an_answer_that_was_taken_late_are_answered_at_once() {
    const REQUESTS: usize = 100;
    let served = Served::new("");
    let mut stream = UnixStream::connect(served.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all("{\"verbline\":1,\"ask\":\"report\"}\n".repeat(REQUESTS).as_bytes()).unwrap();
    // The grant is 20 and then 50 a second: more than its socket holds.
    std::thread::sleep(Duration::from_secs(1));
    let (mut buffer, mut answers, mut longest) = (vec![0; 1 << 20], 0, Duration::ZERO);
    while answers < REQUESTS {
        let from = Instant::now();
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "{answers} answers");
        answers += buffer[..read].iter().filter(|byte| **byte == b'\n').count();
        longest = longest.max(from.elapsed());
    }
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    served.assert_undisturbed();
}

/// The status and the rest of the answer to a request.
fn asked(served: &Served, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(served.operate.metrics().unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.replace('\n', "\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (status, rest) = answer.split_once("\r\n").unwrap();
    (status.strip_prefix("HTTP/1.1 ").unwrap().to_owned(), rest.to_owned())
}

#[test]
fn metrics_are_for_readers_of_this_machine_and_for_no_page_of_another_site() {
    let served = Served::new(METRICS);
    let get = |headers: &str| asked(&served, &format!("GET /metrics HTTP/1.1\n{headers}\n"));
    let (status, answer) = get("Host: localhost:9500\nAccept: application/openmetrics-text;version=1.0.0\n");
    assert!(status == "200 OK" && answer.contains("Content-Type: application/openmetrics-text; version=1.0.0"));
    assert!(answer.ends_with("# EOF\n") && answer.contains("verbline_lcore_time_seconds_total{lcore=\"main\""));
    let (_, older) = get("Host: 127.0.0.1\n");
    assert!(older.contains("text/plain; version=0.0.4") && !older.contains("# EOF"));
    assert!(older.contains("# TYPE verbline_stage_packets_total counter\n"), "{older}");

    for (headers, status) in [
        ("", "421 Misdirected Request"),
        ("Host: evil.example\n", "421 Misdirected Request"),
        ("Host: localhost\nHost: localhost\n", "421 Misdirected Request"),
        ("Host: localhost\nOrigin: http://evil.example\n", "403 Forbidden"),
        ("Host: localhost\nOrigin: null\n", "403 Forbidden"),
        ("Host: localhost\nOrigin: http://localhost\n", "200 OK"),
    ] {
        let (got, answer) = get(headers);
        assert_eq!(got, status, "{headers}: {answer}");
        assert_eq!(answer.contains("lcore"), status == "200 OK", "{answer}");
    }
    let (status, answer) = asked(&served, "POST /metrics HTTP/1.1\nHost: localhost\n\n");
    assert!(status == "405 Method Not Allowed" && answer.contains("Allow: GET, HEAD\r\n"), "{answer}");
    let with_host = |line: &str| asked(&served, &format!("{line}\nHost: localhost\n\n")).0;
    assert_eq!(with_host("GET /etc/passwd HTTP/1.1"), "404 Not Found");
    assert_eq!(with_host("nonsense"), "400 Bad Request");
    assert_eq!(with_host("GET /report.json HTTP/1.1"), "200 OK");
    let (status, page) = asked(&served, "GET / HTTP/1.1\nHost: localhost\n\n");
    assert!(status == "200 OK" && page.contains("Content-Type: text/html") && page.ends_with("</html>\n"), "{page}");
    for _ in 0..2 {
        let (_, awake) = asked(&served, "GET /awake.json HTTP/1.1\nHost: localhost\n\n");
        let words: serde_json::Value = serde_json::from_str(awake.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert!(words["main"].as_str().is_some_and(|words| !words.is_empty()), "{awake}");
    }
    let (_, head) = asked(&served, "HEAD /hello.json HTTP/1.1\nHost: localhost\n\n");
    assert!(head.ends_with("\r\n\r\n"), "{head}");
    served.assert_undisturbed();
}

#[test]
fn a_reader_of_the_metrics_that_finds_no_place_is_told_so_by_http() {
    let served = Served::new(METRICS);
    let connected = |_| TcpStream::connect(served.operate.metrics().unwrap()).unwrap();
    // None of them has been idle for long enough to make room.
    let crowd: Vec<TcpStream> = (0..16).map(connected).collect();
    let mut late = connected(16);
    late.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut answer = String::new();
    late.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n16 clients are being served; ask again\n"), "{answer}");
    drop(crowd);
    served.assert_undisturbed();
}

/// Half a request each, repeated before it is late: the request that has been incomplete for
/// longest makes room.
#[test]
fn requests_that_do_not_come_whole_keep_no_reader_of_the_metrics_out() {
    let served = Served::new(METRICS);
    let half = |_| {
        let mut client = TcpStream::connect(served.operate.metrics().unwrap()).unwrap();
        client.write_all(b"GET ").unwrap();
        client
    };
    let mut crowd: Vec<TcpStream> = (0..16).map(half).collect();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(300));
        let (status, _) = asked(&served, "GET /metrics HTTP/1.1\nHost: localhost\n\n");
        assert_eq!(status, "200 OK");
        crowd = (0..16).map(half).collect();
    }
    drop(crowd);
    served.assert_undisturbed();
}

#[test]
fn a_plan_says_who_may_read_the_metrics() {
    use verbline_operate::MetricsSettings;
    let faulty = |section: &str| match crate::common::load(&format!("[metrics]\n{section}\n")) {
        Ok(plan) => MetricsSettings::of(&plan).unwrap_err().to_string(),
        Err(faults) => faults.render(false),
    };
    assert!(faulty("listen = \"localhost\"").contains("no address with a port"));
    assert!(faulty("listen = \"0.0.0.0:9500\"").contains("hosts = ["));
    assert!(faulty("listen = \"127.0.0.1:1\"\nhosts = [\"a:1\"]").contains("no name of a machine"));
    assert!(faulty("listen = \"127.0.0.1:1\"\nconnections_max = 9999").contains("from 0 to 1000"));
    assert!(faulty("port = 1").contains("[metrics] has no key `port`"));
    assert!(faulty("hosts = []").contains("[metrics] needs `listen`"));
    assert_eq!(MetricsSettings::of(&crate::common::plan("")).unwrap(), None);
}
