//! A request at a run's control socket is read whole, or refused with a code and words. A request
//! that was read and is written again reads as the same request.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use verbline_operate::protocol::{Request, VERSION};

fuzz_target!(|line: &str| match line.parse::<Request>() {
    Ok(request) => {
        let value: Value = serde_json::from_str(line).expect("what was read is JSON");
        assert_eq!(value["verbline"].as_u64(), Some(u64::from(VERSION)), "{request:?}");
        assert_eq!(value["id"].as_u64(), request.id, "{request:?}");
        assert_eq!(value["ask"].as_str(), Some(request.ask.word()), "{request:?}");
        assert_eq!(value["log"].as_str(), request.log.as_deref(), "{request:?}");
        assert_eq!(value["capture"].is_object(), request.capture.is_some(), "{request:?}");
        assert_eq!(value["trace"].is_object(), request.trace.is_some(), "{request:?}");
        let written = serde_json::to_string(&request).expect("a request is JSON");
        assert_eq!(written.parse(), Ok(request), "{written}");
    }
    Err(refusal) => {
        assert!(["malformed", "version", "unknown-ask"].contains(&refusal.code.as_str()), "{refusal:?}");
        assert!(!refusal.message.is_empty());
    }
});
