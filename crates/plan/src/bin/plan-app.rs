//! `plan-app PLAN` prints the app that the plan names, and nothing if it names none or is no plan.
//! `./x` builds that app, which then reports the faults.
#![forbid(unsafe_code)]

fn main() {
    let app = std::env::args_os().nth(1).and_then(verbline_plan::app_of);
    app.iter().for_each(|app| println!("{app}"));
}
