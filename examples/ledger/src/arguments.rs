use clap::{
    Parser, ValueEnum,
    builder::{NonEmptyStringValueParser, RangedU64ValueParser},
};
use tracing_subscriber::EnvFilter;

/// Keeps balances and entries of a topic of transfers, each once and in order,
/// and audits them.
#[derive(Debug, Parser)]
#[command(version, allow_negative_numbers = true)]
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
    #[arg(long, value_parser = count(100))]
    pub(crate) instances: Option<usize>,

    /// Writes so many transfers first, and makes the topic and the tables if
    /// they are not there. 20000 with a broker of its own, else none
    #[arg(long, value_parser = count(10_000_000))]
    pub(crate) produce: Option<usize>,

    /// The seed of the transfers
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Partitions of a topic that is made
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(i32).range(1..=1_000))]
    pub(crate) partitions: i32,

    /// The topic
    #[arg(long, default_value = "transfers", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) topic: String,

    /// The consumer group
    #[arg(long, default_value = "ledger", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) group: String,

    /// The generation of the ledger: a new one is a rebuild
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i64).range(1..))]
    pub(crate) generation: i64,

    /// Ends when all is consumed, and audits, instead of waiting for Ctrl-C
    #[arg(long, requires = "kafka")]
    pub(crate) until_end: bool,

    /// Audits what is there, and does nothing else
    #[arg(long, requires = "kafka", conflicts_with_all = ["produce", "until_end"])]
    pub(crate) audit: bool,

    /// Makes the tables, if they are not there
    #[arg(long, requires = "kafka")]
    pub(crate) migrate: bool,

    /// A property of the client, as name=value; may be repeated
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = property)]
    pub(crate) properties: Vec<(String, String)>,

    /// What is logged to standard error
    #[arg(long, default_value = LOG, value_name = "FILTER", value_parser = filter)]
    pub(crate) log: String,
}

// SQLx warns of parameters in the database's address that it does not know, with
// their values, of which one may be a secret.
const LOG: &str = "warn,librdkafka=error,sqlx_postgres=error";

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

fn filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn count(most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=most)
}
