mod settings;

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

use self::settings::Addresses;
use super::{
    Origin, Signal, Sources, compose,
    maven::{Artifact, is_not_found},
    missing::Missing,
    ports::Port,
    probe,
    run::Run,
    server::{Plan, Server, tail},
};

const KAFKA: Artifact = Artifact {
    name: "Kafka",
    profile: "kafka",
    goal: "copy-dependencies",
    instead: "give one with --kafka HOST:PORT",
};

/// The oldest Java that Kafka 4 runs on.
const OLDEST_JAVA: u32 = 17;

/// Compiles less: for programs that are short, and for three that share a
/// machine.
const QUICK: &str = "-XX:TieredStopAtLevel=1";

/// What kind of Kafka is wanted.
///
/// Anything but the default can be had from local processes alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaOptions {
    /// The number of nodes: one, or three, where a coordinator can move.
    pub nodes: usize,
    /// Further listeners, each for clients that come through a proxy. The
    /// brokers tell those clients to connect to these ports of 127.0.0.1, one
    /// for each node, where the proxy must listen.
    pub proxied: Vec<Vec<u16>>,
    /// Settings of the brokers, instead of ours and Kafka's.
    pub properties: Vec<(String, String)>,
}

/// A Kafka that answers.
///
/// Ended, if it is ours, when it is dropped.
#[derive(Debug)]
pub struct Kafka {
    bootstrap: String,
    version: Option<String>,
    origin: Origin,
    nodes: Vec<Server>,
    proxied: Vec<Vec<SocketAddr>>,
    _ports: Vec<Port>,
}

// ===== impl KafkaOptions =====

impl Default for KafkaOptions {
    fn default() -> Self {
        Self { nodes: 1, proxied: Vec::new(), properties: Vec::new() }
    }
}

// ===== impl Kafka =====

impl Kafka {
    /// Finds or starts a Kafka, and waits until it answers.
    ///
    /// # Errors
    ///
    /// Fails with a [`Missing`] when there is none to be had here, or none of
    /// that kind; and with the end of the log when one does not start.
    pub fn start(run: &Run, sources: &Sources, options: &KafkaOptions) -> Result<Self> {
        let is_plain = *options == KafkaOptions::default();
        if let Some(bootstrap) = &sources.kafka {
            if !is_plain {
                let what = "several nodes, proxies and settings need a Kafka of our own";
                return Err(Missing::new(what, "leave the address out").into());
            }
            probe::check_kafka(bootstrap)?;
            return Ok(Self::single(bootstrap.clone(), None, Origin::Given));
        }
        if is_plain && !sources.local && compose::answers() {
            let port = compose::up(run, "kafka", "TIDEGATE_KAFKA_PORT", &[])?;
            let bootstrap = SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string();
            probe::check_kafka(&bootstrap)?;
            let version = Some(KAFKA.version().to_owned());
            return Ok(Self::single(bootstrap, version, Origin::Container));
        }
        Self::local(run, options)
    }

    /// Where clients connect: `HOST:PORT`, several with commas between them.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// The version, where it is known.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// What serves.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The nodes, to be stopped and started; none if they are not ours.
    pub fn nodes(&mut self) -> &mut [Server] {
        &mut self.nodes
    }

    /// Where the proxies of a listener forward to, one address for each node.
    ///
    /// # Panics
    ///
    /// Panics if the options have no such listener.
    #[must_use]
    pub fn behind_proxy(&self, listener: usize) -> &[SocketAddr] {
        &self.proxied[listener]
    }

    fn single(bootstrap: String, version: Option<String>, origin: Origin) -> Self {
        let (nodes, proxied, ports) = (Vec::new(), Vec::new(), Vec::new());
        Self { bootstrap, version, origin, nodes, proxied, _ports: ports }
    }

    fn local(run: &Run, options: &KafkaOptions) -> Result<Self> {
        let KafkaOptions { nodes: count, proxied, properties } = options;
        if !matches!(count, 1 | 3) {
            bail!("a cluster has one node or three, not {count}");
        }
        if proxied.iter().any(|ports| ports.len() != *count) {
            bail!("a proxied listener has one port for each node");
        }
        let java = find_java()?;
        let jars = KAFKA.fetch(run, &[])?;

        let (addresses, ports) = reserve(*count, proxied)?;
        let cluster = cluster_id()?;
        let mut nodes = Vec::new();
        for index in 0..*count {
            let name = run.name("kafka");
            let broker = Broker {
                java: java.clone(),
                jars: jars.clone(),
                home: run.directory().join(&name),
                id: index + 1,
                address: addresses[index].clients,
                is_alone: *count == 1,
            };
            fs::create_dir(&broker.home)?;
            let data = broker.home.join("data");
            let text = settings::properties(&addresses, index, &data, properties);
            fs::write(broker.properties(), text)?;
            fs::write(broker.logging(), settings::LOGGING)?;
            broker.format(run, &format!("{name}-format"), &cluster)?;
            nodes.push(Server::new(run, &name, broker.plan()));
        }
        // They need each other: none is ready alone.
        nodes.iter_mut().try_for_each(Server::launch)?;
        nodes.iter_mut().try_for_each(Server::wait_until_ready)?;

        let bootstrap: Vec<_> = addresses.iter().map(|node| node.clients.to_string()).collect();
        let proxied = (0..proxied.len())
            .map(|listener| addresses.iter().map(|node| node.proxied[listener].0).collect())
            .collect();
        Ok(Self {
            bootstrap: bootstrap.join(","),
            version: Some(KAFKA.version().to_owned()),
            origin: Origin::Local,
            nodes,
            proxied,
            _ports: ports,
        })
    }
}

/// Reserves the ports of a cluster, in which clients of each further listener
/// are told of `proxied`.
fn reserve(count: usize, proxied: &[Vec<u16>]) -> Result<(Vec<Addresses>, Vec<Port>)> {
    let mut ports = Vec::new();
    let mut reserve = || -> Result<SocketAddr> {
        let port = Port::reserve().context("no port is free")?;
        let address = port.address();
        ports.push(port);
        Ok(address)
    };
    let mut addresses = Vec::new();
    for node in 0..count {
        let mut through = Vec::new();
        for advertised in proxied {
            through.push((reserve()?, (Ipv4Addr::LOCALHOST, advertised[node]).into()));
        }
        let (clients, controller) = (reserve()?, reserve()?);
        addresses.push(Addresses { clients, controller, proxied: through });
    }
    Ok((addresses, ports))
}

/// One node, as files and a command.
#[derive(Clone, Debug)]
struct Broker {
    java: PathBuf,
    jars: PathBuf,
    home: PathBuf,
    id: usize,
    address: SocketAddr,
    is_alone: bool,
}

// ===== impl Broker =====

impl Broker {
    fn properties(&self) -> PathBuf {
        self.home.join("server.properties")
    }

    fn logging(&self) -> PathBuf {
        self.home.join("log4j2.properties")
    }

    /// Writes the node's first, empty log.
    fn format(&self, run: &Run, name: &str, cluster: &str) -> Result<()> {
        let mut command = self.command(&[QUICK], "kafka.tools.StorageTool");
        command.args(["format", "--cluster-id", cluster, "--config"]).arg(self.properties());
        let status = run.spawn_logged(name, &mut command, Signal::SIGKILL)?.wait()?;
        if !status.success() {
            bail!("Kafka's storage was not formatted\n{}", tail(&run.log(name)));
        }
        Ok(())
    }

    fn plan(self) -> Plan {
        let Self { address, id, .. } = self;
        Plan {
            command: Box::new(move || {
                let options: &[_] = if self.is_alone { &["-Xmx1g"] } else { &["-Xmx512m", QUICK] };
                let mut command = self.command(options, "kafka.Kafka");
                command.arg(self.properties());
                command
            }),
            // Its data is removed: there is nothing that it could do on the way.
            signal: Signal::SIGKILL,
            ready: Box::new(move || {
                let known = probe::brokers(address)?;
                if !known.iter().any(|known| usize::try_from(*known) == Ok(id)) {
                    bail!("the controller has not let it in yet");
                }
                Ok(())
            }),
        }
    }

    fn command(&self, options: &[&str], class: &str) -> Command {
        let mut command = Command::new(&self.java);
        command
            .args(options)
            .args(["-XX:+UseSerialGC", "-cp"])
            .arg(self.jars.join("*"))
            .arg(format!("-Dlog4j2.configurationFile={}", self.logging().display()))
            .arg(class);
        command
    }
}

/// The Java that `JAVA_HOME` names, else the one on the path.
fn find_java() -> Result<PathBuf> {
    let home = std::env::var_os("JAVA_HOME").filter(|home| !home.is_empty());
    let java = home.map_or_else(|| "java".into(), |home| Path::new(&home).join("bin/java"));
    let remedy = format!("install Java {OLDEST_JAVA} or newer, or {}", KAFKA.instead);
    let output = Command::new(&java).arg("-version").stdin(Stdio::null()).output();
    let output = match output.context("starting Java") {
        Ok(output) => output,
        Err(error) if is_not_found(&error) => {
            let what = format!("Kafka needs Java, and there is no `{}`", java.display());
            return Err(Missing::new(what, remedy).into());
        }
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&output.stderr);
    match java_version(&text) {
        Some(version) if version >= OLDEST_JAVA => Ok(java),
        Some(version) => {
            Err(Missing::new(format!("Kafka cannot run on Java {version}"), remedy).into())
        }
        None => {
            let what = format!("`{} -version` does not tell its version", java.display());
            Err(Missing::new(what, remedy).into())
        }
    }
}

/// The number before the first dot of what Java says in quotes; before Java 9
/// that was a one.
fn java_version(text: &str) -> Option<u32> {
    let version = text.split('"').nth(1)?;
    let digits = version.split(|character: char| !character.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// A cluster id, as Kafka writes them: sixteen bytes in the web's base 64.
///
/// Of those, the digits are used that hexadecimal has too; the last one stands
/// for two bits alone.
fn cluster_id() -> Result<String> {
    Ok(format!("{}A", &super::secret()?[..21]))
}

#[cfg(test)]
mod tests {
    use super::{KAFKA, cluster_id, java_version};

    #[test]
    fn javas_version_is_read_in_both_forms() {
        let check = |text, version| assert_eq!(java_version(text), version, "{text}");
        check("openjdk version \"17.0.15\" 2025-04-15", Some(17));
        check("openjdk version \"25\" 2025-09-16", Some(25));
        check("java version \"1.8.0_402\"", Some(1));
        check("openjdk version \"24-ea\" 2025-03-18", Some(24));
        check("command not found", None);
    }

    #[test]
    fn containers_have_the_same_version() {
        let compose = include_str!("../../../docker-compose.yaml");
        let image = format!("image: apache/kafka:{}\n", KAFKA.version());
        assert!(compose.contains(&image), "docker-compose.yaml lacks {image}");
    }

    #[test]
    fn clusters_have_ids_of_their_own() {
        let id = cluster_id().unwrap();
        assert_eq!(id.len(), 22);
        assert_ne!(id, cluster_id().unwrap());
    }
}
