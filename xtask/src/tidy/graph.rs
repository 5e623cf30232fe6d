//! The direction of dependencies.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Package};

use super::Finding;
use crate::workspace::{folder, root};

/// The crates that are one layer each.
pub(super) const LAYERS: &[&str] = &[
    "tidegate-dead-letter",
    "tidegate-decode",
    "tidegate-fence",
    "tidegate-frontier",
    "tidegate-inbox",
    "tidegate-queue",
    "tidegate-retry",
    "tidegate-sequencer",
];

const CORE: &[&str] = &["tidegate-core"];
const SQL: &[&str] = &["tidegate-core", "tidegate-sql"];

/// What each crate may depend on, of ours.
const ALLOWED: &[(&str, &[&str])] = &[
    ("tidegate-core", &[]),
    ("tidegate-dead-letter", CORE),
    ("tidegate-decode", CORE),
    ("tidegate-fence", CORE),
    ("tidegate-frontier", CORE),
    ("tidegate-kafka", CORE),
    ("tidegate-queue", CORE),
    ("tidegate-retry", CORE),
    ("tidegate-sql", CORE),
    ("tidegate-inbox", SQL),
    ("tidegate-sequencer", SQL),
    (
        "tidegate",
        &[
            "tidegate-core",
            "tidegate-dead-letter",
            "tidegate-decode",
            "tidegate-fence",
            "tidegate-frontier",
            "tidegate-inbox",
            "tidegate-kafka",
            "tidegate-queue",
            "tidegate-retry",
            "tidegate-sequencer",
            "tidegate-sql",
        ],
    ),
    // The judge shares no code with what it judges.
    ("tidegate-oracle", &[]),
    ("tidegate-testkit", &["tidegate-core", "tidegate-oracle"]),
];

/// What examples may depend on, of ours: what a user would.
const EXAMPLES: &[&str] = &["tidegate", "tidegate-testkit"];

/// The only crates that may name librdkafka's binding, beside those in
/// `benches`.
const KAFKA_CLIENTS: &[&str] =
    &["tidegate-kafka", "tidegate-lab", "tidegate-oracle", "tidegate-testkit"];

/// A package and the names that its manifest depends on.
#[derive(Clone, Debug, Default)]
struct Node {
    name: String,
    /// The folder, from the root of the workspace.
    folder: String,
    /// What its users build too, optional or not.
    normal: BTreeSet<String>,
    /// What only its tests and examples use.
    dev: BTreeSet<String>,
    /// Folders outside the workspace that it depends on.
    outside: Vec<String>,
}

pub(super) fn check(packages: &[&Package]) -> Vec<Finding> {
    let nodes: Vec<_> = packages.iter().map(|package| Node::new(package)).collect();
    check_nodes(&nodes)
}

fn check_nodes(nodes: &[Node]) -> Vec<Finding> {
    let ours: BTreeMap<_, _> = nodes.iter().map(|node| (node.name.as_str(), node)).collect();
    let mut findings = Vec::new();
    for node in nodes {
        let name = &node.name;
        let mut find = |what: String| findings.push(format!("{name} {what}"));
        for path in &node.outside {
            find(format!("depends on {path}, outside the workspace"));
        }
        match node.allowed() {
            Ok(Some(allowed)) => {
                let is_wrong =
                    |other: &&String| ours.contains_key(&***other) && !allowed.contains(&&***other);
                for other in node.normal.iter().filter(is_wrong) {
                    find(format!("may not depend on {other}"));
                }
            }
            Ok(None) => {}
            Err(()) => find("has no place in the table of crates in tidy/graph.rs".to_owned()),
        }
        let every = || node.normal.iter().chain(&node.dev);
        if every().any(|other| other.starts_with("rdkafka")) && !node.may_name_rdkafka() {
            find("may not name rdkafka: tidegate-kafka does".to_owned());
        }
        if every().any(|other| other.starts_with("sea-orm")) && !stands_on_sql(node, &ours) {
            find("may not name sea-orm: tidegate-sql does".to_owned());
        }
        let is_layer = LAYERS.contains(&name.as_str());
        if is_layer && name != "tidegate-retry" && node.normal.contains("tower") {
            find("may not depend on tower: tower-service and tower-layer are enough".to_owned());
        }
    }
    findings
}

/// Whether a package is `tidegate-sql`, or depends on it, directly or not.
fn stands_on_sql(node: &Node, ours: &BTreeMap<&str, &Node>) -> bool {
    let mut below = vec![node];
    let mut seen = BTreeSet::new();
    while let Some(node) = below.pop() {
        if node.name == "tidegate-sql" {
            return true;
        }
        if seen.insert(&node.name) {
            below.extend(node.normal.iter().filter_map(|name| ours.get(name.as_str())));
        }
    }
    false
}

// ===== impl Node =====

impl Node {
    fn new(package: &Package) -> Self {
        let folder = folder(package);
        let mut node = Self {
            name: package.name.to_string(),
            folder: folder.strip_prefix(root()).unwrap_or(folder).display().to_string(),
            ..Self::default()
        };
        for dependency in &package.dependencies {
            let kind = match dependency.kind {
                DependencyKind::Development => &mut node.dev,
                _ => &mut node.normal,
            };
            kind.insert(dependency.name.clone());
            if let Some(path) = &dependency.path
                && !path.starts_with(root())
            {
                node.outside.push(path.to_string());
            }
        }
        node
    }

    /// What it may depend on, of ours; `None` if that is anything. Fails if
    /// there is no rule for it, and should be.
    fn allowed(&self) -> Result<Option<&'static [&'static str]>, ()> {
        if self.folder.starts_with("examples") {
            return Ok(Some(EXAMPLES));
        }
        if !self.folder.starts_with("crates") {
            return Ok(None);
        }
        let rule = ALLOWED.iter().find(|(name, _)| *name == self.name);
        rule.map(|(_, allowed)| Some(*allowed)).ok_or(())
    }

    fn may_name_rdkafka(&self) -> bool {
        KAFKA_CLIENTS.contains(&self.name.as_str()) || self.folder.starts_with("benches")
    }
}

#[cfg(test)]
mod tests {
    use super::{Node, check, check_nodes};
    use crate::workspace::Workspace;

    fn node(folder: &str, normal: &[&str]) -> Node {
        let name = folder.rsplit('/').next().unwrap().to_owned();
        let normal = normal.iter().map(ToString::to_string).collect();
        Node { name, folder: folder.to_owned(), normal, ..Node::default() }
    }

    #[track_caller]
    fn finds(nodes: &[Node], finding: &str) {
        let findings = check_nodes(nodes);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].contains(finding), "{findings:?}");
    }

    #[test]
    fn the_crates_of_this_workspace_depend_in_one_direction() {
        let workspace = Workspace::load().unwrap();
        assert_eq!(check(&workspace.packages()), [""; 0]);
    }

    #[test]
    fn layers_do_not_depend_on_each_other() {
        let core = node("crates/tidegate-core", &["bytes"]);
        let fence = node("crates/tidegate-fence", &["tidegate-core"]);
        assert_eq!(check_nodes(&[core.clone(), fence.clone()]), [""; 0]);
        let queue = node("crates/tidegate-queue", &["tidegate-core", "tidegate-fence"]);
        finds(&[core, fence, queue], "tidegate-queue may not depend on tidegate-fence");
    }

    #[test]
    fn the_judge_depends_on_nothing_of_ours() {
        let core = node("crates/tidegate-core", &[]);
        let oracle = node("crates/tidegate-oracle", &["rdkafka", "tidegate-core"]);
        finds(&[core, oracle], "tidegate-oracle may not depend on tidegate-core");
    }

    #[test]
    fn a_crate_without_a_rule_is_found() {
        finds(&[node("crates/tidegate-mongo", &[])], "has no place");
        assert_eq!(check_nodes(&[node("xtask", &["clap"])]), [""; 0]);
    }

    #[test]
    fn only_the_driver_names_the_client_in_tests_too() {
        let mut sql = node("crates/tidegate-sql", &["sea-orm"]);
        sql.dev.insert("rdkafka-sys".to_owned());
        finds(&[sql], "may not name rdkafka");
        assert_eq!(check_nodes(&[node("crates/tidegate-kafka", &["rdkafka"])]), [""; 0]);
        assert_eq!(check_nodes(&[node("benches/peers", &["rdkafka"])]), [""; 0]);
    }

    #[test]
    fn only_what_stands_on_the_sql_crate_names_its_database_library() {
        let sql = node("crates/tidegate-sql", &["sea-orm"]);
        let facade = node("crates/tidegate", &["tidegate-sql"]);
        let ledger = node("examples/ledger", &["sea-orm", "tidegate"]);
        assert_eq!(check_nodes(&[sql.clone(), facade, ledger]), [""; 0]);
        let kafka = node("crates/tidegate-kafka", &["sea-orm-migration"]);
        finds(&[sql, kafka], "tidegate-kafka may not name sea-orm");
    }

    #[test]
    fn layers_stand_on_towers_traits_alone() {
        assert_eq!(check_nodes(&[node("crates/tidegate-retry", &["tower"])]), [""; 0]);
        finds(&[node("crates/tidegate-fence", &["tower"])], "may not depend on tower");
    }

    #[test]
    fn examples_use_what_users_would() {
        let core = node("crates/tidegate-core", &[]);
        let batch = node("examples/batch", &["tidegate-core"]);
        finds(&[core, batch], "batch may not depend on tidegate-core");
    }

    #[test]
    fn a_path_outside_the_workspace_is_found() {
        let mut xtask = node("xtask", &[]);
        xtask.outside.push("../elsewhere".to_owned());
        finds(&[xtask], "depends on ../elsewhere, outside the workspace");
    }
}
