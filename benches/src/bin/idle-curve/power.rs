//! The CPUs' frequency and sleep states, as far as /sys shows them: read, not changed.

use std::fs;
use std::path::Path;

/// The facts, one line each, for people.
pub(crate) fn read() -> Vec<String> {
    let cpu = Path::new("/sys/devices/system/cpu");
    let text = |path: &Path| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let frequency =
        match (text(&cpu.join("cpu0/cpufreq/scaling_governor")), text(&cpu.join("cpu0/cpufreq/scaling_cur_freq"))) {
            (Some(governor), Some(khz)) => {
                format!("frequency: governor {governor}, {} MHz", khz.parse().unwrap_or(0_u64) / 1000)
            }
            _ => "frequency: /sys does not tell (no cpufreq: a virtual machine, or a kernel without it)".to_owned(),
        };
    let driver = text(&cpu.join("cpuidle/current_driver")).filter(|driver| driver != "none");
    let states = driver.map(|driver| {
        let state = |at: usize| {
            let state = cpu.join(format!("cpu0/cpuidle/state{at}"));
            Some(format!("{} ({} µs)", text(&state.join("name"))?, text(&state.join("latency"))?))
        };
        format!("C-states: {driver}: {}", (0..).map_while(state).collect::<Vec<_>>().join(", "))
    });
    let states = states.unwrap_or_else(|| "C-states: /sys does not tell (no cpuidle driver)".to_owned());
    vec![frequency, states]
}
