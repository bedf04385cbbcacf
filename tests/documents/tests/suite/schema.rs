//! The JSON schemas of the apps' plans, for editors: they contain what the apps declare, and they
//! agree with a check.
//!
//! After a change of a key, write them again:
//! `WRITE=1 cargo test -p document-tests --test suite -- schema`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use jsonschema::Validator;
use serde_json::{Map, Value, json};
use verbline::plan::{Diagnostics, Hugepages, Numa, schema};
use verbline::prelude::*;
use verbline_operate::{MetricsSettings, TraceSettings};
use verbline_tests::root;

use crate::keys::apps;

const FOLDER: &str = "docs/schema";
const PLANS: [&str; 3] = ["config", "config/two-processes", "tests/plans"];

/// An app, with the schema and the loader for its plans.
struct Known {
    app: &'static str,
    registry: Registry,
    loader: Loader,
    schema: Value,
    validator: Validator,
}

fn known() -> Vec<Known> {
    let of = |(app, mut registry): (&'static str, Registry)| {
        // Registered as the command line does.
        MetricsSettings::register(&mut registry);
        TraceSettings::register(&mut registry);
        let schema = schema(&registry.catalog());
        let validator = jsonschema::draft7::new(&schema).unwrap_or_else(|error| panic!("{app}: {error}"));
        // The machine is looked at once, and not for each of thousands of plans.
        let loader = Loader::new(registry.catalog(), machine());
        Known { app, registry, loader, schema, validator }
    };
    apps().into_iter().map(of).collect()
}

fn machine() -> Machine {
    Machine {
        cpus: (0..8).collect(),
        memlock_bytes: None,
        memory_bytes: 64 << 30,
        huge_2m: Hugepages::Absent,
        numa: Numa::default(),
        ..Machine::detect()
    }
}

/// The shipped plans of an app.
fn plans(app: &str) -> Vec<PathBuf> {
    let files = PLANS.iter().flat_map(|folder| fs::read_dir(root().join(folder)).expect("plans").flatten());
    let mut plans: Vec<PathBuf> = files.map(|entry| entry.path()).filter(|path| is_of(path, app)).collect();
    plans.sort();
    plans
}

fn is_of(path: &Path, app: &str) -> bool {
    let text = fs::read_to_string(path).unwrap_or_default();
    path.extension().is_some_and(|end| end == "toml") && text.lines().any(|line| line == format!("app = \"{app}\""))
}

impl Known {
    fn loaded(&self, plan: &Value) -> Result<Plan, Diagnostics> {
        let text = toml::to_string(plan).expect("a plan is TOML");
        self.loader.load_str("plan.toml", &text)
    }

    /// Why a check refuses the plan; `None`: it doesn't.
    fn refused(&self, plan: &Value) -> Option<String> {
        match self.loaded(plan) {
            Err(faults) => Some(faults.to_string()),
            Ok(plan) => Runtime::check(&plan, &self.registry).err().map(|faults| faults.to_string()),
        }
    }
}

#[test]
fn the_stored_schemas_are_what_the_apps_declare() {
    let mut stored = BTreeSet::new();
    for Known { app, schema, .. } in known() {
        let path = root().join(FOLDER).join(format!("{app}.json"));
        if std::env::var_os("WRITE").is_some() {
            fs::create_dir_all(root().join(FOLDER)).expect("a folder");
            fs::write(&path, format!("{schema:#}\n")).expect("a schema");
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            text == format!("{schema:#}\n"),
            "{} is not what {app} declares: write it with WRITE=1",
            path.display()
        );
        stored.insert(path);
    }
    let there: BTreeSet<PathBuf> =
        fs::read_dir(root().join(FOLDER)).expect("schemas").flatten().map(|entry| entry.path()).collect();
    assert_eq!(there, stored, "{FOLDER} has the schemas of the apps, and nothing else");
}

#[test]
fn every_shipped_plan_names_its_schema_and_holds_to_it() {
    let mut seen = 0;
    for known in known() {
        for path in plans(known.app) {
            let text = fs::read_to_string(&path).expect("a plan");
            let named = text.lines().next().and_then(|line| line.strip_prefix("#:schema ")).unwrap_or_default();
            let named = path.parent().expect("a folder").join(named);
            let own = root().join(FOLDER).join(format!("{}.json", known.app));
            assert!(named.is_file(), "{}: its first line is no `#:schema PATH`", path.display());
            assert_eq!(named.canonicalize().ok(), own.canonicalize().ok(), "{}", path.display());

            let plan: Value = toml::from_str(&text).expect("TOML");
            let faults: Vec<String> =
                known.validator.iter_errors(&plan).map(|fault| format!("{}: {fault}", fault.instance_path())).collect();
            assert!(faults.is_empty(), "{}: {faults:#?}", path.display());
            if let Err(faults) = known.loaded(&plan) {
                panic!("{}: {faults}", path.display());
            }
            seen += 1;
        }
    }
    assert!(seen >= 16, "{seen} plans");
}

/// Each key of the schema, in every table of a plan, with a value of another type, out of bounds,
/// or not among its words; and an unknown key. A check and the schema refuse each.
#[test]
fn a_wrong_plan_is_refused_by_the_schema_and_by_check() {
    for known in known() {
        let path = plans(known.app).into_iter().next().unwrap_or_else(|| panic!("{} has no plan", known.app));
        let plan: Value = toml::from_str(&fs::read_to_string(&path).expect("a plan")).expect("TOML");
        let mut cases = Cases { plan: &plan, wrong: Vec::new(), right: Vec::new() };
        cases.of_object(&known.schema, &plan, &mut Vec::new());
        assert!(cases.wrong.len() > 100, "{}: {} wrong plans", known.app, cases.wrong.len());

        let mut disagree = Vec::new();
        for (what, wrong) in &cases.wrong {
            match (known.validator.is_valid(wrong), known.refused(wrong)) {
                (false, Some(_)) => {}
                (is_valid, refused) => disagree.push(format!("{what}: schema {is_valid}, check {refused:?}")),
            }
        }
        // A check may refuse a value within the bounds for its effect on a sum, never for itself.
        for (what, right) in &cases.right {
            let is_valid = known.validator.is_valid(right);
            let refused = known.refused(right).filter(|why| why.contains("out of range") || why.contains("not within"));
            if !is_valid || refused.is_some() {
                disagree.push(format!("{what}: schema {is_valid}, check {refused:?}"));
            }
        }
        assert!(
            disagree.is_empty(),
            "{}: {} of {}:\n{}",
            known.app,
            disagree.len(),
            cases.wrong.len(),
            disagree.join("\n")
        );
    }
}

/// Every key of every section has a value of no type that a key takes: a check finds all in one go,
/// beside a fault of the plan's own tables.
#[test]
fn a_check_finds_the_faults_of_all_keys_of_an_app_at_once() {
    for known in known() {
        let path = plans(known.app).into_iter().next().unwrap_or_else(|| panic!("{} has no plan", known.app));
        let mut plan: Value = toml::from_str(&fs::read_to_string(&path).expect("a plan")).expect("TOML");
        let mut places = BTreeSet::from(["name".to_owned()]);
        plan["name"] = json!([[]]);
        for section in known.registry.catalog().sections {
            let schema = &known.schema["properties"][section];
            let schema = schema["anyOf"].get(0).unwrap_or(schema);
            let keys = schema["properties"].as_object().expect("keys").keys();
            places.extend(keys.clone().map(|key| format!("{section}.{key}")));
            plan[section] = keys.map(|key| (key.clone(), json!([[]]))).collect::<Map<_, _>>().into();
        }
        // Each key by a flag, which names it in the place of its fault.
        let flags = places.iter().map(|place| format!("{place}=[[]]"));
        let loader = known.loader.clone().sets(flags);
        let faults = loader.load_str("plan.toml", &toml::to_string(&plan).expect("TOML")).expect_err("all is wrong");
        let found = faults.errors().map(|fault| fault.location().to_string());
        let found: BTreeSet<String> =
            found.filter_map(|at| Some(at.strip_prefix("--set ")?.strip_suffix("=[[]]")?.to_owned())).collect();
        assert_eq!(found, places, "{}", known.app);
        assert_eq!(faults.errors().count(), places.len(), "{}: {faults}", known.app);
    }
}

/// Plans that differ from a good one in one value, which a schema allows or forbids.
struct Cases<'a> {
    plan: &'a Value,
    wrong: Vec<(String, Value)>,
    right: Vec<(String, Value)>,
}

impl Cases<'_> {
    /// The plan with another value at the path.
    fn with(&self, path: &[String], value: &Value) -> (String, Value) {
        let mut plan = self.plan.clone();
        let place = path.iter().fold(&mut plan, |at, key| &mut at[key.as_str()]);
        *place = value.clone();
        (format!("{} = {value}", path.join(".")), plan)
    }

    fn of_object(&mut self, schema: &Value, value: &Value, path: &mut Vec<String>) {
        let empty = Map::new();
        let has = value.as_object().unwrap_or(&empty);
        // A table of tables: each of them.
        if let Some(each) = schema["additionalProperties"].as_object().filter(|each| each.contains_key("properties")) {
            for (name, inner) in has {
                self.at(name, path, |cases, path| cases.of_object(&Value::Object(each.clone()), inner, path));
            }
            return;
        }
        if schema["additionalProperties"] == false {
            self.at("surplus", path, |cases, path| cases.wrong.push(cases.with(path, &json!(1))));
        }
        let of_kind = schema["allOf"].as_array().into_iter().flatten();
        let of_kind = of_kind.filter(|one| one["if"]["properties"]["use"]["const"] == value["use"]);
        let of_kind = of_kind.filter_map(|one| one["then"]["properties"].as_object());
        let mut properties = schema["properties"].as_object().cloned().unwrap_or_default();
        of_kind.for_each(|more| properties.extend(more.clone()));
        for (name, inner) in &properties {
            self.at(name, path, |cases, path| match has.get(name) {
                Some(table @ Value::Object(_)) => cases.of_object(inner, table, path),
                _ => cases.of_value(inner, path),
            });
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let mut plan = self.plan.clone();
            let table = path.iter().fold(&mut plan, |at, key| &mut at[key.as_str()]);
            if table.as_object_mut().is_some_and(|table| table.remove(name).is_some()) {
                self.wrong.push((format!("{} without {name}", path.join(".")), plan));
            }
        }
    }

    fn of_value(&mut self, schema: &Value, path: &[String]) {
        let (mut wrong, mut right) = (Vec::new(), Vec::new());
        match schema["type"].as_str() {
            Some("integer" | "number") => {
                wrong.extend([json!("1"), json!(true), json!([1])]);
                for (bound, beyond) in [("minimum", -1), ("maximum", 1)] {
                    let Some(bound) = schema[bound].as_i64() else { continue };
                    right.push(json!(bound));
                    // TOML has no greater integer than 2^63 - 1.
                    wrong.extend(bound.checked_add(beyond).map(|beyond| json!(beyond)));
                }
                wrong.extend((schema["type"] == "integer").then(|| json!(1.5)));
            }
            Some("string") => {
                wrong.extend([json!(1), json!(false), json!(["a"])]);
                wrong.extend(schema.get("enum").or(schema.get("pattern")).map(|_| json!("no word of it")));
            }
            Some("boolean") => wrong.extend([json!(1), json!("true")]),
            Some("array") => wrong.extend([json!("a"), json!([1])]),
            Some("object") => wrong.extend([json!("a"), json!(1)]),
            _ if schema.get("const").is_some() => wrong.push(json!("another")),
            // A CPU; one text or several.
            _ => wrong.extend([json!(true), json!([])]),
        }
        self.wrong.extend(wrong.iter().map(|value| self.with(path, value)).collect::<Vec<_>>());
        self.right.extend(right.iter().map(|value| self.with(path, value)).collect::<Vec<_>>());
    }

    fn at(&mut self, name: &str, path: &mut Vec<String>, visit: impl FnOnce(&mut Self, &mut Vec<String>)) {
        path.push(name.to_owned());
        visit(self, path);
        path.pop();
    }
}
