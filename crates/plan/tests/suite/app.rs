//! The app that a plan names, even if the rest is no plan: `./x` builds that one.

use std::fs;

use verbline_plan::app_of;

#[test]
fn it_is_found_however_toml_writes_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.toml");
    let app = |text: &str| {
        fs::write(&path, text).unwrap();
        app_of(&path)
    };
    for text in [
        "app = \"pingpong\"\n[lcore.a]\n",
        "  app='pingpong' # the one with two lcores\n",
        "\"app\" = \"\"\"pingpong\"\"\"",
        "name = \"n\"\r\napp = \"ping\\u0070ong\"\r\n",
        "no = TOML =\napp = \"pingpong\"\n",
    ] {
        assert_eq!(app(text).as_deref(), Some("pingpong"), "{text}");
    }
    for text in [
        "",
        "app = 1\n",
        "# app = \"pingpong\"\n",
        "[feed]\napp = \"pingpong\"\n",
        "text = '''\napp = \"pingpong\"\n'''\n",
    ] {
        assert_eq!(app(text), None, "{text}");
    }
}

#[test]
fn what_is_no_plan_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let long = folder.path().join("long.toml");
    fs::write(&long, "app = \"pingpong\"\n".to_owned() + &" ".repeat(2 << 20)).unwrap();
    for path in [folder.path(), &long, "/dev/zero".as_ref(), "/nowhere/plan.toml".as_ref()] {
        assert_eq!(app_of(path), None, "{}", path.display());
    }
}
