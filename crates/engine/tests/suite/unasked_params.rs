//! Keys in `params` that neither a kind nor an acceptor reads are refused, each at its place.

use crate::common::{desk, one_lcore, plan, registry};
use serde::Deserialize;
use verbline_engine::{
    Acceptor, Answer, ConnectionRequest, EngineError, Opening, Registry, Runtime, Stage, StageContext, StageError,
    StageSpec,
};

struct Quiet;

impl Stage for Quiet {}

struct LetsIn;

impl Acceptor for LetsIn {
    fn decide(&mut self, _: &ConnectionRequest<'_>) -> Answer {
        Answer::accept()
    }
}

#[derive(Deserialize)]
struct Loudness {
    loudness: u32,
}

fn asks(stage: &StageContext<'_>) -> Result<(), StageError> {
    let _ = stage.params::<Loudness>()?.loudness;
    Ok(())
}

/// Kinds by when they read their params: not at all, as they are made, described or opened, by way
/// of another stage, to refuse any.
fn app() -> Registry {
    type Opened = Result<Box<dyn Stage>, StageError>;
    let mut registry = registry();
    let spec = StageSpec { source: true, summary: "for a test", ..StageSpec::default() };
    registry.stage("deaf", spec, |_| Ok(Box::new(Quiet)));
    registry.stage("hears", spec, |stage| asks(stage).map(|()| Box::new(Quiet) as Box<dyn Stage>));
    registry.stage("keeps", spec, |stage| {
        let _kept = stage.raw_params().clone();
        Ok(Box::new(Quiet))
    });
    registry.stage("eavesdrops", spec, |stage| {
        stage.plan().stages()[0].params.parse::<Loudness>()?;
        Ok(Box::new(Quiet))
    });
    let open = |(), _: &Opening<'_>| -> Opened { Ok(Box::new(Quiet)) };
    registry.opening_stage("opens-deaf", spec, |_| Ok(()), open);
    registry.opening_stage("opens-none", spec, |stage| Ok(stage.no_params()?), open);
    registry.opening_stage("opens", spec, asks, open);
    registry.opening_stage(
        "opens-late",
        spec,
        |_| Ok(()),
        move |(), opening| {
            asks(opening)?;
            Ok(Box::new(Quiet))
        },
    );
    registry.stage("desk", StageSpec { outputs: &["out"], source: false, ..spec }, |_| Ok(Box::new(Quiet)));
    registry.acceptor("deaf-door", |_| Ok(Box::new(LetsIn)));
    registry
}

/// Returns the message of a check, and whether the runtime can be built.
fn judged(text: &str) -> (String, Result<(), EngineError>) {
    let registry = app();
    let checked = Runtime::check(&plan(&registry, text), &registry);
    // In a plan of its own: params read in the check do not count.
    let built = Runtime::build(&plan(&registry, text), &registry);
    (checked.err().map(|faults| faults.render(false)).unwrap_or_default(), built.map(drop))
}

fn stage(kind: &str, params: &str) -> String {
    format!("[stage.one]\nuse = \"{kind}\"\nlcore = \"only\"\nparams = {{ {params} }}\n")
}

fn of_kind(kind: &str, params: &str) -> (String, Result<(), EngineError>) {
    judged(&one_lcore("event", &stage(kind, params)))
}

#[test]
fn params_that_nobody_asks_for_are_refused_by_name_and_place() {
    let (said, built) = of_kind("deaf", "loudness = 1, pitch = 2");
    for (key, column) in [("loudness", 12), ("pitch", 26)] {
        assert!(said.contains(&format!("unknown key `{key}`")), "{said}");
        assert!(said.contains(&format!(":{column}\n")), "{said}");
    }
    assert!(said.contains("stage kind `deaf` takes no keys: leave it out of [stage.one.params]"), "{said}");
    let error = built.unwrap_err();
    assert!(matches!(&error, EngineError::Params(_)) && error.to_string().contains("loudness"), "{error}");
    let (said, built) = of_kind("deaf", "");
    assert!(said.is_empty() && built.is_ok(), "{said}");
}

#[test]
fn params_that_somebody_asks_for_are_not_refused() {
    for kind in ["hears", "keeps", "opens", "opens-late"] {
        let (said, built) = of_kind(kind, "loudness = 1");
        assert!(said.is_empty() && built.is_ok(), "{kind}: {said} {built:?}");
    }
    let eavesdrops = "[stage.other]\nuse = \"eavesdrops\"\nlcore = \"only\"\n";
    let (said, built) = judged(&one_lcore("event", &(stage("deaf", "loudness = 1") + eavesdrops)));
    assert!(said.is_empty() && built.is_ok(), "{said} {built:?}");
}

#[test]
fn a_kind_that_opens_something_has_its_turn_before_its_params_are_judged() {
    let (said, built) = of_kind("opens-deaf", "loudness = 1");
    assert_eq!(said, "", "it might ask as it opens");
    assert!(matches!(built, Err(EngineError::Params(_))), "{built:?}");
    let (said, built) = of_kind("opens-none", "loudness = 1");
    assert!(said.contains("unknown key `loudness`"), "{said}");
    assert!(matches!(built, Err(EngineError::Params(_))), "{built:?}");
    let (said, built) = of_kind("opens-none", "");
    assert!(said.is_empty() && built.is_ok(), "{said}");
}

#[test]
fn what_an_acceptor_does_not_ask_for_is_refused_too() {
    let keys = "acceptor = \"deaf-door\"\nconnections_max = 2\nrx_shared_wr = 64\ntx_depth_wr = 16\n";
    let server = |params: &str| desk::server(7392, &format!("{keys}acceptor_params = {{ {params} }}\n"));
    let (said, built) = judged(&server("tries = 3"));
    assert!(said.contains("unknown key `tries`") && said.contains("acceptor `deaf-door` takes no keys"), "{said}");
    assert!(matches!(built, Err(EngineError::Params(_))), "{built:?}");
    assert_eq!(judged(&server("")).0, "");
}
