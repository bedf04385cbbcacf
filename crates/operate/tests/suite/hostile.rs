//! Clients that stall, lie or come in crowds: others are served, and the run does not notice.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use verbline_operate::client::{Client, ClientError};

use crate::common::Served;

const ASK_REPORT: &[u8] = b"{\"verbline\":1,\"ask\":\"report\"}\n";

/// Reads until the end. Returns the time that took, and the number of bytes.
fn drained(stream: &mut UnixStream) -> (Duration, usize) {
    let (from, mut read) = (Instant::now(), 0);
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut buffer = [0; 65536];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => read += bytes,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            // The process was stopped and went on.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("{error}"),
        }
    }
    (from.elapsed(), read)
}

fn is_served(served: &Served) {
    let asked = Instant::now();
    // A client that comes while all places are taken is told to try again.
    while let Err(error) = Client::connect(&served.socket()).and_then(|mut client| client.seen()) {
        assert!(asked.elapsed() < Duration::from_secs(30), "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_thousand_clients_that_say_nothing_keep_nobody_out() {
    let served = Served::new("");
    // With the queue of connections full, a connect blocks: they connect as fast as they are
    // accepted.
    let connect = |_| UnixStream::connect(served.socket()).ok();
    let crowd: Vec<_> = (0..1000).filter_map(connect).collect();
    assert!(crowd.len() > 900, "{}", crowd.len());
    is_served(&served);
    drop(crowd);
    is_served(&served);
    served.assert_undisturbed();
}

#[test]
fn half_a_request_and_an_answer_that_nobody_takes_end_their_clients() {
    let served = Served::new("");
    let mut half = UnixStream::connect(served.socket()).unwrap();
    half.write_all(b"{\"verbline\":1,").unwrap();
    // More than a socket holds, and the answers to it far more.
    let mut deaf = UnixStream::connect(served.socket()).unwrap();
    deaf.set_nonblocking(true).unwrap();
    let mut sent = 0;
    while sent < 4000 {
        match deaf.write(ASK_REPORT) {
            Ok(_) => sent += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    is_served(&served);
    let (took, read) = drained(&mut half);
    assert!(took > Duration::from_secs(1) && read == 0, "{took:?}, {read} bytes");
    deaf.set_nonblocking(false).unwrap();
    is_served(&served);
    // It has read nothing for longer than an answer may take. It can still read the rest in its
    // socket, and then the connection ends.
    std::thread::sleep(Duration::from_secs(3));
    let (_, read) = drained(&mut deaf);
    assert!(read > 0 && read < 4 << 20, "{read} bytes");
    is_served(&served);
    served.assert_undisturbed();
}

#[test]
fn garbage_is_answered_by_what_is_wrong_with_it() {
    let served = Served::new("");
    for (garbage, code) in [
        (b"\xff\xfe\n".to_vec(), "malformed"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "malformed"),
        (b"[".repeat(1000).into_iter().chain(*b"\n").collect(), "malformed"),
        (vec![b'x'; 100_000], "too-long"),
        (b"{\"verbline\":99,\"ask\":\"report\"}\n".to_vec(), "version"),
    ] {
        let mut stream = UnixStream::connect(served.socket()).unwrap();
        // The server may drop it before all of it is sent.
        let _ = stream.write_all(&garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = vec![0; 65536];
        let read = stream.read(&mut answer).unwrap_or(0);
        let answer = String::from_utf8_lossy(&answer[..read]);
        assert!(answer.contains(&format!("\"code\":\"{code}\"")), "{code}: {answer}");
    }
    is_served(&served);
    served.assert_undisturbed();
}

#[test]
fn a_client_that_asks_without_end_waits_for_its_grant_and_others_do_not() {
    let served = Served::new("");
    let path = served.socket();
    let greedy = std::thread::spawn(move || {
        let mut client = Client::connect(&path).unwrap();
        let (from, mut answers) = (Instant::now(), 0);
        while from.elapsed() < Duration::from_millis(500) {
            client.hello().unwrap();
            answers += 1;
        }
        answers
    });
    is_served(&served);
    let answers = greedy.join().unwrap();
    assert!((2..=60).contains(&answers), "20 at once and 50 a second: {answers}");
    served.assert_undisturbed();
}

#[test]
fn a_run_that_does_not_answer_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deaf.sock");
    let _listens = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let from = Instant::now();
    let error = Client::connect(&path).unwrap().hello().unwrap_err();
    assert!(matches!(error, ClientError::Late { .. }), "{error}");
    assert!(from.elapsed() < Duration::from_secs(10));
}
