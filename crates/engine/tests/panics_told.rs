//! A stage panics while nobody reads standard error, in a program without a panic hook of its own.
//! Alone in its file, as it puts a full pipe in standard error's place.

#[path = "suite/common/mod.rs"]
mod common;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use common::{fed, one_lcore, plan, registry};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{dup, write};
use rustix::pipe::pipe;
use rustix::stdio::dup2_stderr;
use verbline_engine::{EngineError, Outputs, Runtime, Stage, StageSpec};
use verbline_mem::Batch;

struct Panics;

impl Stage for Panics {
    fn process(&mut self, _: &mut Batch, _: &mut Outputs<'_>) {
        panic!("on purpose, with nobody to read it");
    }
}

#[test]
fn an_lcore_that_panics_waits_for_nobody_to_read_standard_error() {
    let mut registry = registry();
    registry.stage("panics", StageSpec { summary: "panics", ..StageSpec::default() }, |_| Ok(Box::new(Panics)));
    let plan = plan(&registry, &one_lcore("poll", &fed("count = 1", "use = \"panics\"")));
    let runtime = Runtime::build(&plan, &registry).unwrap();

    let (reader, writer) = pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while write(&writer, &[b'.'; 4096]).is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    let stderr = dup(std::io::stderr()).unwrap();
    dup2_stderr(&writer).unwrap();
    drop(writer);

    // Like the standard library's hook, whose messages the test harness would keep from standard
    // error.
    std::panic::set_hook(Box::new(|info| _ = writeln!(std::io::stderr(), "{info}")));
    let began = Instant::now();
    let running = runtime.start().unwrap();
    running.wait(Some(Duration::from_secs(20)));
    let stopped = running.stop();
    let took = began.elapsed();

    // Now it is read, and the message arrives.
    let mut said = String::new();
    fcntl_setfl(&reader, OFlags::NONBLOCK).unwrap();
    let mut reader = File::from(reader);
    let until = Instant::now() + Duration::from_secs(20);
    while !said.contains("nobody to read it") && Instant::now() < until {
        let mut piece = [0; 4096];
        let len = reader.read(&mut piece).unwrap_or(0);
        said += &String::from_utf8_lossy(&piece[..len]);
    }
    dup2_stderr(&stderr).unwrap();
    // Further writes to it fail: nobody reads it.
    drop(reader);

    let error = stopped.unwrap_err();
    assert!(matches!(&error, EngineError::Panicked { message, .. } if message.contains("on purpose")), "{error}");
    assert!(took < Duration::from_secs(10), "it waited for {took:?}");
    let told = said.trim_start_matches('.').trim_start();
    assert!(told.starts_with("thread '") && told.contains("panicked at ") && told.contains("panics_told.rs"), "{told}");
}
