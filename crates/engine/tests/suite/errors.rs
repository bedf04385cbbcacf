//! The messages for plans that cannot run here: what is wrong, on which line, with which value, and
//! the remedy.

use crate::common::{plan, plan_on, registry};
use verbline_engine::{EngineError, Registry, Runtime, StageSpec};
use verbline_plan::Machine;

const PLAN: &str = r#"
[lcore.a]
cpu = "allowed:0"
[device.nic0]
provider = "soft"
name = "soft0"
[pool.p]
device = "nic0"
packets = 8192
data_bytes = 64
pages = "4KiB"
[port.left]
lcore = "a"
device = "nic0"
pool = "p"
transport = "rc"
peer = "port.right"
rx_depth_wr = 16
tx_depth_wr = 0
next = "stage.sink"
[port.right]
lcore = "a"
device = "nic0"
pool = "p"
transport = "rc"
peer = "port.left"
rx_depth_wr = 16
tx_depth_wr = 16
inline_bytes = 64
next = "drop"
[stage.gen]
use = "generator"
lcore = "a"
pool = "p"
out = { out = "port.right" }
params = { count = 1 }
[stage.sink]
use = "sink"
lcore = "a"
"#;

fn refused(text: &str) -> EngineError {
    let registry = registry();
    Runtime::build(&plan(&registry, text), &registry).expect_err("this plan cannot run")
}

#[test]
fn a_device_that_is_not_there_and_those_that_are() {
    let error = refused(&PLAN.replace("\"soft\"", "\"kernel\"").replace("\"soft0\"", "\"mlx5_7\""));
    assert!(matches!(error, EngineError::Device { .. }), "{error:?}");
    let says = "test.toml:4:9: device.nic0: no kernel device is named \"mlx5_7\"; there are";
    assert!(error.to_string().starts_with(says), "{error}");
}

#[test]
fn a_port_that_the_device_has_not() {
    let error = refused(&PLAN.replace("name = \"soft0\"", "name = \"soft0\"\nport = 9"));
    assert!(error.to_string().starts_with("test.toml:4:9: device.nic0: "), "{error}");
    assert!(error.to_string().contains("port 9"), "{error}");
}

#[test]
fn more_inline_than_the_device_grants() {
    let error = refused(
        &PLAN
            .replace("inline_bytes = 64", "inline_bytes = 60000")
            .replace("data_bytes = 64", "data_bytes = 65536")
            .replace("packets = 8192", "packets = 1024"),
    );
    let EngineError::DeviceLimit { key: "inline_bytes", asked: 60_000, limit, .. } = &error else {
        panic!("{error:?}")
    };
    assert!(*limit > 0 && *limit < 60_000);
    assert!(
        error.to_string().starts_with("test.toml:21:7: port.right: inline_bytes is 60000, but soft0 grants "),
        "{error}"
    );
}

#[test]
fn a_completion_queue_that_is_deeper_than_the_devices() {
    let error = refused(&PLAN.replace("cpu = \"allowed:0\"", "cpu = \"allowed:0\"\ncq_depth_wc = 5_000_000"));
    let EngineError::DeviceLimit { asked: 5_000_000, limit, .. } = &error else { panic!("{error:?}") };
    assert_eq!(
        error.to_string(),
        format!(
            "test.toml:2:8: lcore.a: cq_depth_wc (the sum of all that can complete into it) is 5000000, but soft0 \
             grants {limit}; lower it to that"
        )
    );
}

#[test]
fn a_cpu_that_this_process_may_not_use() {
    // The plan was checked for a machine that has this CPU.
    let mut machine = Machine::detect();
    machine.cpus.insert(999);
    let registry = registry();
    let plan = plan_on(&registry, &PLAN.replace("cpu = \"allowed:0\"", "cpu = 999"), machine);
    let error = Runtime::build(&plan, &registry).unwrap().start().expect_err("there is no CPU 999");
    let EngineError::Pin { cpu: 999, allowed, .. } = &error else { panic!("{error:?}") };
    assert!(!allowed.is_empty());
    assert!(
        error
            .to_string()
            .starts_with("test.toml:2:8: lcore.a: cannot be pinned to CPU 999; this process may run on CPU "),
        "{error}"
    );
}

#[test]
fn a_parameter_that_the_stage_cannot_read() {
    let error = refused(&PLAN.replace("params = { count = 1 }", "params = { cuont = 1 }"));
    assert!(matches!(error, EngineError::Params(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("test.toml:36:") && text.contains("cuont"), "{text}");
}

#[test]
fn a_stage_that_refuses() {
    let mut registry = Registry::new("test");
    let spec = StageSpec { outputs: &["out"], source: true, ..StageSpec::default() };
    registry.stage("generator", spec, |_| Err("the moon is full".into()));
    registry.stage("sink", StageSpec::default(), |context| context.section::<u32>("feed").map(|_| unreachable!()));
    let error = Runtime::build(&plan(&registry, PLAN), &registry).unwrap_err();
    insta::assert_snapshot!(error, @"test.toml:31:8: stage.gen (generator): the moon is full");
}

#[test]
fn a_plan_that_was_checked_for_another_app() {
    let registry = registry();
    let plan = plan(&registry, PLAN);
    let error = Runtime::build(&plan, &Registry::new("other")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "test.toml:31:8: stage.gen: the kind `generator` is not registered; check the plan with the catalog of the \
         registry that runs it"
    );
}
