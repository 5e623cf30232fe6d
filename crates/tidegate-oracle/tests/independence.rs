//! A judge that shares code with what it judges shares its mistakes.

use std::{env, process::Command};

use serde_json::Value;

#[test]
fn the_oracle_depends_on_no_crate_of_ours() {
    let cargo = env::var("CARGO").expect("cargo runs the tests");
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--no-deps", "--manifest-path", manifest])
        .output()
        .expect("cargo can be run");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("a workspace has packages");
    let name = env!("CARGO_PKG_NAME");
    let own = packages.iter().find(|package| package["name"] == name);
    let dependencies = own.expect("it is a member")["dependencies"].as_array();
    // Those of tests too.
    for dependency in dependencies.expect("it has dependencies") {
        assert_eq!(dependency["path"], Value::Null, "{}", dependency["name"]);
        let named = dependency["name"].as_str().expect("a dependency has a name");
        assert!(!named.starts_with("tidegate"), "{named}");
    }
}
