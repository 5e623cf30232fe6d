//! The real Kafka and the real PostgreSQL of a run.

use std::{
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result};
use tidegate_testkit::{Mode, Proxy, Wire};
use tokio::{
    sync::{OwnedMutexGuard, Semaphore, SemaphorePermit},
    task::spawn_blocking,
};
use xtask::services::{
    Database, DatabaseOptions, Kafka, KafkaOptions, Missing, Port, Run, Server, Signal, Sources,
    Versions,
};

use crate::evidence::Origins;

/// How many listeners of the broker have a proxy of the lab before them.
const PROXIED: usize = 6;

/// What the experiments of a run work with.
pub(crate) struct Services {
    run: Run,
    kafka: Arc<Mutex<Kafka>>,
    database: Arc<Mutex<Database>>,
    bootstrap: String,
    database_url: String,
    // Of three nodes, once an experiment needs it; one at a time.
    cluster: Arc<tokio::sync::Mutex<Option<Kafka>>>,
    sources: Sources,
    proxies: Vec<Arc<tokio::sync::Mutex<Proxy>>>,
    // So many of them are free.
    free: Semaphore,
    versions: Versions,
    origins: Origins,
}

/// A proxy between a worker and the broker, which nobody else uses meanwhile.
pub(crate) struct KafkaProxy<'a> {
    proxy: OwnedMutexGuard<Proxy>,
    _free: SemaphorePermit<'a>,
}

/// A Kafka of three nodes, which nobody else uses meanwhile.
pub(crate) struct ThreeNodes {
    kafka: Arc<Mutex<OwnedMutexGuard<Option<Kafka>>>>,
    pub(crate) bootstrap: String,
}

/// What an experiment needs is not there.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Lacking(pub(crate) &'static str);

// ===== impl Services =====

impl Services {
    /// Finds or starts both.
    ///
    /// The broker has proxies before it where it is ours. Where it is not, the
    /// experiments that need one are not run.
    pub(crate) async fn start(run: Run, sources: Sources) -> Result<Self> {
        let ports = (0..PROXIED).map(|_| Port::reserve()).collect::<Result<Vec<_>, _>>()?;
        let numbers: Vec<_> = ports.iter().map(|port| vec![port.number()]).collect();
        let started = spawn_blocking({
            let (run, sources) = (run.clone(), sources.clone());
            move || -> Result<_> {
                let (kafka, proxied) = start_kafka(&run, &sources, numbers)?;
                let database = start_database(&run, &sources)?;
                let versions = Versions::of(&kafka, &database, librdkafka());
                let origins = Origins { kafka: kafka.origin(), postgresql: database.origin() };
                Ok((kafka, proxied, database, versions, origins))
            }
        });
        let (kafka, proxied, database, versions, origins) = started.await??;
        let mut proxies = Vec::new();
        for (listener, port) in ports.iter().enumerate().filter(|_| proxied) {
            let upstream = kafka.behind_proxy(listener)[0].to_string();
            let proxy = Proxy::bind(port.address(), upstream, Wire::Kafka).await;
            let proxy = proxy.context("starting a proxy")?;
            proxies.push(Arc::new(tokio::sync::Mutex::new(proxy)));
        }
        Ok(Self {
            run,
            bootstrap: kafka.bootstrap().to_owned(),
            database_url: database.url().to_owned(),
            kafka: Arc::new(Mutex::new(kafka)),
            database: Arc::new(Mutex::new(database)),
            cluster: Arc::default(),
            sources,
            free: Semaphore::new(proxies.len()),
            proxies,
            versions,
            origins,
        })
    }

    /// A proxy before the broker, once one is free.
    pub(crate) async fn kafka_proxy(&self) -> Result<KafkaProxy<'_>> {
        if self.proxies.is_empty() {
            return Err(Lacking(
                "this Kafka cannot have a proxy before it: leave the address out, and install Java",
            )
            .into());
        }
        let free = self.free.acquire().await?;
        let proxy = self.proxies.iter().find_map(|proxy| Arc::clone(proxy).try_lock_owned().ok());
        let proxy = proxy.context("there are as many proxies as permits")?;
        proxy.set(Mode::Pass).await;
        Ok(KafkaProxy { proxy, _free: free })
    }

    /// Does something to the broker, which has to be ours, and alone.
    pub(crate) async fn with_kafka<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Server) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let kafka = Arc::clone(&self.kafka);
        let work = move || {
            let mut kafka = kafka.lock().unwrap_or_else(PoisonError::into_inner);
            match kafka.nodes() {
                [node] => work(node),
                _ => Err(Lacking(
                    "this Kafka is not ours to stop: leave the address out, and install Java",
                )
                .into()),
            }
        };
        spawn_blocking(work).await?
    }

    /// Sends the broker's process a signal.
    pub(crate) async fn signal_kafka(&self, signal: Signal) -> Result<()> {
        let send = move |node: &mut Server| {
            node.process().context("it is up")?.signal(signal);
            Ok(())
        };
        self.with_kafka(send).await
    }

    /// A Kafka of three nodes, once nobody else uses it.
    pub(crate) async fn three_nodes(&self) -> Result<ThreeNodes> {
        let mut kafka = Arc::clone(&self.cluster).lock_owned().await;
        let (run, sources) = (self.run.clone(), self.sources.clone());
        let started = spawn_blocking(move || -> Result<_> {
            if kafka.is_none() {
                let options = KafkaOptions { nodes: 3, ..KafkaOptions::default() };
                *kafka = Some(Kafka::start(&run, &sources, &options)?);
            }
            Ok(kafka)
        });
        let kafka = started.await??;
        let bootstrap = kafka.as_ref().context("it was started")?.bootstrap().to_owned();
        Ok(ThreeNodes { kafka: Arc::new(Mutex::new(kafka)), bootstrap })
    }

    /// Does something to the database server, which has to be ours, and alone.
    pub(crate) async fn with_database<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Server) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let database = Arc::clone(&self.database);
        let work = move || {
            let mut database = database.lock().unwrap_or_else(PoisonError::into_inner);
            match database.server() {
                Some(server) => work(server),
                None => Err(Lacking(
                    "this PostgreSQL is not ours to stop: leave the address out, or install \
                     PostgreSQL",
                )
                .into()),
            }
        };
        spawn_blocking(work).await?
    }

    /// What owns the processes.
    pub(crate) fn run(&self) -> &Run {
        &self.run
    }

    /// Where brokers are found without a proxy.
    pub(crate) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// The database, without a proxy.
    pub(crate) fn database_url(&self) -> &str {
        &self.database_url
    }

    /// Leaves the services running.
    pub(crate) fn keep(&self) -> Result<()> {
        let exports = self.addresses().map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.run.keep(exports.into())
    }

    /// Where they are found, as variables of the environment.
    pub(crate) fn addresses(&self) -> [(&'static str, &str); 2] {
        [("TIDEGATE_KAFKA", &self.bootstrap), ("TIDEGATE_DATABASE", &self.database_url)]
    }

    pub(crate) fn versions(&self) -> &Versions {
        &self.versions
    }

    pub(crate) fn origins(&self) -> Origins {
        self.origins
    }
}

impl ThreeNodes {
    /// Does something to a node, by its id.
    pub(crate) async fn with<T: Send + 'static>(
        &self,
        id: i32,
        work: impl FnOnce(&mut Server) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let kafka = Arc::clone(&self.kafka);
        let work = move || {
            let mut kafka = kafka.lock().unwrap_or_else(PoisonError::into_inner);
            let nodes = kafka.as_mut().context("it was started")?.nodes();
            let node = usize::try_from(id - 1).ok().and_then(|index| nodes.get_mut(index));
            work(node.with_context(|| format!("there is no node {id}"))?)
        };
        spawn_blocking(work).await?
    }
}

impl Deref for KafkaProxy<'_> {
    type Target = Proxy;

    fn deref(&self) -> &Proxy {
        &self.proxy
    }
}

impl Drop for KafkaProxy<'_> {
    fn drop(&mut self) {
        // Whoever has it next sets its mode; a member that is left is cut off.
        self.proxy.close_connections();
    }
}

fn start_kafka(run: &Run, sources: &Sources, ports: Vec<Vec<u16>>) -> Result<(Kafka, bool)> {
    if sources.kafka.is_none() {
        let options = KafkaOptions { proxied: ports, ..KafkaOptions::default() };
        match Kafka::start(run, sources, &options) {
            Ok(kafka) => return Ok((kafka, true)),
            // A container may do, without proxies.
            Err(error) if error.downcast_ref::<Missing>().is_some() && !sources.local => {}
            Err(error) => return Err(error),
        }
    }
    Ok((Kafka::start(run, sources, &KafkaOptions::default())?, false))
}

/// A container, which cannot be stopped, will do where there are no programs.
fn start_database(run: &Run, sources: &Sources) -> Result<Database> {
    let options = DatabaseOptions::default();
    if sources.database.is_none() {
        let local = Sources { local: true, ..sources.clone() };
        match Database::start(run, &local, &options) {
            Err(error) if error.downcast_ref::<Missing>().is_some() && !sources.local => {}
            started => return started,
        }
    }
    Database::start(run, sources, &options)
}

/// The versions of a run that has no services.
pub(crate) fn unavailable() -> Versions {
    Versions::of_no_service(librdkafka())
}

fn librdkafka() -> String {
    rdkafka::util::get_rdkafka_version().1
}
