//! HTTP as far as metrics and a page need it: GET and HEAD, one request per connection, read only.
//!
//! Guarantees: a request is answered only if it names this machine as its host and comes from no
//! other site. So another site's page in a browser can't read the data served here, even under a
//! name that it resolves to this address.

use std::time::Instant;

use httparse::{EMPTY_HEADER, Request, Status};

use crate::metrics::exposition::Format;
use crate::page;
use crate::protocol::{Ask, Refusal};
use crate::snapshot_cache::Told;

/// Headers of one request.
const HEADERS_MAX: usize = 64;

/// Whether the headers are complete; a head that can't be parsed counts as complete.
pub(crate) fn is_whole(input: &[u8]) -> bool {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    !matches!(Request::new(&mut headers).parse(input), Ok(Status::Partial))
}

const NOT_ALLOWED: &str = "405 Method Not Allowed";

/// A response.
struct Reply {
    status: &'static str,
    kind: &'static str,
    body: String,
}

impl Reply {
    fn ok(kind: &'static str, body: String) -> Reply {
        Reply { status: "200 OK", kind, body }
    }

    fn error(status: &'static str, why: &str) -> Reply {
        Reply { status, kind: "text/plain; charset=utf-8", body: format!("{why}\n") }
    }

    fn of(kind: &'static str, answer: Result<String, Refusal>) -> Reply {
        match answer {
            Ok(body) => Reply::ok(kind, body),
            Err(why) => Reply::error("503 Service Unavailable", &why.message),
        }
    }

    /// Makes the answer out of the body's buffer, as [`line`](crate::protocol::line) does.
    fn bytes(self, with_body: bool) -> Vec<u8> {
        let Reply { status, kind, mut body } = self;
        // RFC 9110, 15.5.6.
        let allow = if status == NOT_ALLOWED { "Allow: GET, HEAD\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {status}\r\n{allow}Content-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\nX-Frame-Options: DENY\r\n\
             Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
             connect-src 'self'; img-src data:\r\n\r\n",
            body.len()
        );
        if !with_body {
            return head.into_bytes();
        }
        body.insert_str(0, &head);
        body.into_bytes()
    }
}

/// The response for a client that is not served.
pub(crate) fn refusal(why: &Refusal) -> Vec<u8> {
    Reply::of("text/plain; charset=utf-8", Err(why.clone())).bytes(true)
}

/// The whole answer to a request.
pub(crate) fn answer(input: &[u8], told: &mut Told<'_>, now: Instant) -> Vec<u8> {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut request = Request::new(&mut headers);
    match request.parse(input) {
        Ok(Status::Complete(_)) => {}
        Ok(Status::Partial) => {
            return Reply::error("431 Request Header Fields Too Large", "the request is too long").bytes(true);
        }
        Err(error) => return Reply::error("400 Bad Request", &format!("this is no HTTP request: {error}")).bytes(true),
    }
    let method = request.method.unwrap_or_default();
    reply(&request, told, now).bytes(method != "HEAD")
}

fn reply(request: &Request<'_, '_>, told: &mut Told<'_>, now: Instant) -> Reply {
    let header = |name: &str| {
        let mut all = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        let first = all.next().and_then(|header| std::str::from_utf8(header.value).ok());
        // Two of the same header count as none: a proxy may have looked at the other one.
        first.filter(|_| all.next().is_none())
    };
    if !matches!(request.method, Some("GET" | "HEAD")) {
        return Reply::error(NOT_ALLOWED, "only GET and HEAD are answered: nothing can be changed here");
    }
    let Some(host) = header("host").filter(|host| told.is_host(host)) else {
        let why = "the request names another machine as its host; `hosts` of the plan's [metrics] lists names of this";
        return Reply::error("421 Misdirected Request", why);
    };
    let has_origin = request.headers.iter().any(|header| header.name.eq_ignore_ascii_case("origin"));
    if has_origin && header("origin").and_then(|origin| origin.split_once("://")).is_none_or(|(_, from)| from != host) {
        return Reply::error("403 Forbidden", "a page of another site asks; nothing is told to it");
    }
    let path = request.path.unwrap_or_default();
    match path.split_once('?').map_or(path, |(path, _)| path) {
        "/" => Reply::ok("text/html; charset=utf-8", page::html()),
        "/metrics" => {
            let format = Format::accepted(header("accept").unwrap_or_default());
            Reply::of(format.content_type(), told.metrics(format, now))
        }
        "/hello.json" => Reply::of("application/json", told.json(Ask::Hello, now)),
        "/report.json" => Reply::of("application/json", told.json(Ask::Report, now)),
        "/graph.json" => Reply::of("application/json", told.json(Ask::Graph, now)),
        // For the page: a plan that keeps no packets is no error.
        "/kept.json" if !told.keeps() => Reply::ok("application/json", "null".to_owned()),
        "/kept.json" => Reply::of("application/json", told.json(Ask::Kept, now)),
        "/awake.json" => Reply::of("application/json", told.awake(now)),
        _ => Reply::error(
            "404 Not Found",
            "there are the page /, /metrics, /hello.json, /report.json, /graph.json, /kept.json and /awake.json",
        ),
    }
}
