//! More things that a machine may lack: rights that it refuses to a process, and a stack.

use std::process::Command;

use verbline_tests::{skipped, unwrapped};

use super::{rig, without};

// The advice was to raise the limit of threads. The kernel refuses the policy to a thread that may
// not run on all CPUs.
#[test]
fn two_lcores_under_sched_deadline_it_is_the_policy_that_is_blamed() {
    let deadline = |more: &[&str]| {
        let mut wrapper = vec!["chrt".to_owned(), "--deadline".to_owned()];
        wrapper.extend(more.iter().map(|word| (*word).to_owned()));
        wrapper.extend(["--sched-runtime", "5000000", "--sched-deadline", "10000000"].map(str::to_owned));
        wrapper.extend(["--sched-period", "10000000", "0"].map(str::to_owned));
        wrapper
    };
    let wrapper = deadline(&[]);
    if !Command::new(&wrapper[0]).args(&wrapper[1..]).arg("true").output().is_ok_and(|output| output.status.success()) {
        skipped("chrt(1) may not run a program under SCHED_DEADLINE here");
        return;
    }
    let program = rig().with(["--no-socket"]);
    let said = unwrapped(&program.run_as(&mut program.behind(wrapper)).exited(1).stderr);
    assert!(said.contains("lcore.main: starting its thread: "), "{said}");
    assert!(said.contains("`chrt --deadline --reset-on-fork`") && !said.contains("ulimit"), "{said}");
    // The advice helps.
    program.run_as(&mut program.behind(deadline(&["--reset-on-fork"]))).exited(0);
}

// Each command aborted: "thread 'main' has overflowed its stack".
#[test]
fn with_a_small_stack_the_limit_is_raised_or_named() {
    for (limits, code) in [("65536:", 0), ("65536:65536", 1), ("262144:262144", 0)] {
        let wrapper = ["prlimit".to_owned(), format!("--stack={limits}")];
        let program = rig();
        let shown = program.run_as(&mut program.behind(wrapper)).exited(code);
        let said = unwrapped(&shown.stderr);
        let named = "error: the stack may have 64 KiB, and 256 KiB are needed: raise the limit (`ulimit -s 8192`)";
        assert_eq!(said.contains(named), code == 1, "{limits}: {shown}");
    }
}

// The error was the kernel's word alone.
#[test]
fn without_the_right_to_the_port_of_roce_the_setting_is_named() {
    let is_root = rustix::process::geteuid().is_root();
    let above = "ip link set lo up && echo 5000 > /proc/sys/net/ipv4/ip_unprivileged_port_start && exec setpriv \
                 --bounding-set=-net_bind_service \"$@\"";
    let apart = ["unshare", "--net"].into_iter().chain((!is_root).then_some("--map-root-user"));
    let apart: Vec<_> = apart.chain(["sh", "-c", above, "sh"]).collect();
    if !Command::new(apart[0]).args(&apart[1..]).arg("true").output().is_ok_and(|output| output.status.success()) {
        skipped("unshare(1), ip(8) or setpriv(1) may not make a network namespace with protected ports here");
        return;
    }
    let program = rig().with(["--set", "device.nic.address=127.0.0.1"]);
    let said = unwrapped(&program.run_as(&mut program.behind(apart)).exited(1).stderr);
    assert!(said.contains("no socket for RoCE at 127.0.0.1:4791: Permission denied"), "{said}");
    assert!(said.contains("`sysctl -w net.ipv4.ip_unprivileged_port_start=1024` as root"), "{said}");
}

#[test]
fn without_eventfd_it_is_the_filter_that_is_blamed() {
    let program = rig().with(["--no-socket"]);
    let said = unwrapped(&program.run_as(&mut program.behind(without("eventfd"))).exited(1).stderr);
    assert!(said.contains("a seccomp filter refuses eventfd2(2)") && !said.contains("infiniband"), "{said}");
}
