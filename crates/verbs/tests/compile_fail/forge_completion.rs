//! A completion is polled, never made or copied.

use verbline_verbs::Completion;

fn copy(completion: &Completion) -> Completion {
    completion.clone()
}

fn main() {}
