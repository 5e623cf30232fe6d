use clap::{Parser, ValueEnum};

/// Keeps balances and entries of a topic of transfers, each once and in order,
/// and audits them.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Arguments {
    /// A broker of a Kafka that is there, as host:port. Without it, a broker in
    /// this process
    #[arg(long, requires = "database")]
    pub(crate) kafka: Option<String>,

    /// The database of a Kafka that is there: `postgres://…` or `sqlite://…`
    #[arg(long, requires = "kafka")]
    pub(crate) database: Option<String>,

    /// How members share the partitions
    #[arg(long, value_enum, default_value_t = Protocol::Consumer)]
    pub(crate) protocol: Protocol,

    /// Members in this process. 3 with a broker of its own, else 1
    #[arg(long)]
    pub(crate) instances: Option<usize>,

    /// Writes so many transfers first, and makes the topic and the tables if
    /// they are not there. 20000 with a broker of its own, else none
    #[arg(long)]
    pub(crate) produce: Option<usize>,

    /// The seed of the transfers
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Partitions of a topic that is made
    #[arg(long, default_value_t = 8)]
    pub(crate) partitions: i32,

    /// The topic
    #[arg(long, default_value = "transfers")]
    pub(crate) topic: String,

    /// The consumer group
    #[arg(long, default_value = "ledger")]
    pub(crate) group: String,

    /// The generation of the ledger: a new one is a rebuild
    #[arg(long, default_value_t = 1)]
    pub(crate) generation: i64,

    /// Ends when all is consumed, and audits, instead of waiting for Ctrl-C
    #[arg(long)]
    pub(crate) until_end: bool,

    /// Audits what is there, and does nothing else
    #[arg(long, conflicts_with_all = ["produce", "until_end"])]
    pub(crate) audit: bool,

    /// Makes the tables, if they are not there
    #[arg(long)]
    pub(crate) migrate: bool,

    /// A property of the client, as name=value; may be repeated
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = property)]
    pub(crate) properties: Vec<(String, String)>,

    /// What is logged to standard error
    #[arg(long, default_value = "warn,librdkafka=error", value_name = "FILTER")]
    pub(crate) log: String,
}

/// How members share the partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// The broker decides (KIP-848)
    Consumer,
    /// Members decide, and give all up for each change
    Range,
    /// Members decide, and give up what moves
    CooperativeSticky,
}

fn property(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it is a name, `=` and a value")?;
    Ok((name.to_owned(), value.to_owned()))
}
