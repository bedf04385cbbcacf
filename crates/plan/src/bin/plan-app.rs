//! `plan-app PLAN` prints the app that the plan is for, and nothing if it names none or is no plan:
//! `./x` builds that app, which then says what is wrong.
#![forbid(unsafe_code)]

fn main() {
    let app = std::env::args_os().nth(1).and_then(verbline_plan::app_of);
    app.iter().for_each(|app| println!("{app}"));
}
