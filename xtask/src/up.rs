//! Starts a real Kafka and PostgreSQL, and leaves them running.

use std::{collections::BTreeMap, fs::File};

use anyhow::Result;

use crate::{
    report::{answer, note},
    services::{Database, DatabaseOptions, Kafka, KafkaOptions, Run, Sources},
    workspace::Workspace,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    sources: Sources,
    /// The number of Kafka's nodes: 1 or 3
    #[arg(long, default_value_t = 1)]
    nodes: usize,
    /// A further listener of Kafka, for clients that come through a proxy on
    /// this port; with three nodes, three ports with commas between them
    #[arg(long, value_name = "PORT", value_delimiter = ',')]
    proxy: Vec<u16>,
    /// Keep PostgreSQL's data on tmpfs, with commits that take 1 ms
    #[arg(long)]
    in_memory: bool,
}

/// Prints the addresses as variables for a shell. Does nothing but that when
/// they are up already.
pub(crate) fn run(arguments: &Arguments, workspace: &Workspace) -> Result<()> {
    let services = workspace.services();
    std::fs::create_dir_all(&services)?;
    let alone = File::create(services.join("up.lock"))?;
    alone.lock()?;

    for kept in Run::kept(&services)? {
        if kept.is_whole() {
            note(&"up already; `cargo xtask down` ends it");
            show(kept.exports());
            return Ok(());
        }
        note(&"ending what is left of an `up` whose processes have died");
        kept.end()?;
    }

    let Arguments { sources, nodes, proxy, in_memory } = arguments;
    let run = Run::begin(&services, "up")?;
    let proxied = if proxy.is_empty() { Vec::new() } else { vec![proxy.clone()] };
    let options = KafkaOptions { nodes: *nodes, proxied, ..KafkaOptions::default() };
    let kafka = Kafka::start(&run, sources, &options)?;
    let options = DatabaseOptions { in_memory: *in_memory, ..DatabaseOptions::default() };
    let database = Database::start(&run, sources, &options)?;

    let mut exports = BTreeMap::new();
    exports.insert("TIDEGATE_KAFKA".to_owned(), kafka.bootstrap().to_owned());
    exports.insert("TIDEGATE_DATABASE".to_owned(), database.url().to_owned());
    if !proxy.is_empty() {
        let behind: Vec<_> = kafka.behind_proxy(0).iter().map(ToString::to_string).collect();
        exports.insert("TIDEGATE_KAFKA_BEHIND_PROXY".to_owned(), behind.join(","));
    }
    run.keep(exports.clone())?;
    show(&exports);
    Ok(())
}

fn show(exports: &BTreeMap<String, String>) {
    for (name, value) in exports {
        answer(&format!("export {name}='{value}'"));
    }
}
