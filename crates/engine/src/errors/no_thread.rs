//! The remedy where the kernel refuses a thread.

use std::fs;

const LIMIT: &str = "raise the limit of threads (ulimit -u, prlimit --nproc, pids.max of a cgroup), or free memory";

/// EAGAIN of clone(2): "the caller is operating under SCHED_DEADLINE".
const DEADLINE: &str = "a thread under SCHED_DEADLINE may make no others unless its reset-on-fork flag is set: start \
                        the program by `chrt --deadline --reset-on-fork`, or under another policy";

/// SCHED_DEADLINE, in <linux/sched.h>.
const SCHED_DEADLINE: u32 = 6;

/// Returns the remedy where the calling thread can make no other one.
pub(crate) fn remedy() -> &'static str {
    let policy = fs::read_to_string("/proc/thread-self/stat").ok().and_then(|stat| policy(&stat));
    if policy == Some(SCHED_DEADLINE) { DEADLINE } else { LIMIT }
}

/// The field `policy` of proc_pid_stat(5), the 41st. The second one, a name, may have blanks.
fn policy(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(41 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_is_found_behind_any_name() {
        let numbers: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        assert_eq!(policy(&format!("7 (a) 1 b) S {}\n", numbers.join(" "))), Some(41));
        assert_eq!(policy("7 (a) S 1"), None);
        assert_eq!(remedy(), LIMIT, "this thread has the usual policy");
    }
}
