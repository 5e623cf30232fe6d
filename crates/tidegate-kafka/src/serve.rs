use std::{
    fmt,
    future::{IntoFuture, pending},
    pin::Pin,
    thread,
    time::Duration,
};

use tidegate_core::{Delivery, Error, IsRecorded};
use tokio::{runtime::Handle, select, sync::oneshot, time::timeout};
use tower_service::Service;

use crate::{
    Assignment, KafkaConfig, ServeError,
    config::{GroupProtocol, Session, Settings},
    driver::Driver,
    metrics::Metrics,
    session,
    status::Publisher,
    stop::Stop,
    task,
};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A source that serves its assignments. Await it.
///
/// It ends with `Ok` after a graceful shutdown, and with an error when it
/// cannot go on.
///
/// # Panics
///
/// When it is awaited outside of a Tokio runtime.
///
/// # Cancel safety
///
/// Dropping it ends the source without a drain: leases are lost, what runs is
/// dropped, and the group is left in the background. Nothing is lost by that;
/// the next owners repeat what was not committed.
#[must_use = "a source does nothing unless awaited"]
pub struct Serve<M> {
    config: KafkaConfig,
    settings: Settings,
    topics: Vec<String>,
    publisher: Publisher,
    make_service: M,
    shutdown: BoxFuture<()>,
}

// ===== impl Serve =====

impl<M> Serve<M> {
    pub(crate) fn new(
        config: KafkaConfig,
        settings: Settings,
        topics: Vec<String>,
        publisher: Publisher,
        make_service: M,
    ) -> Self {
        let shutdown = Box::pin(pending());
        Self { config, settings, topics, publisher, make_service, shutdown }
    }

    /// Drains all partitions, commits, leaves the group and ends when
    /// `shutdown` resolves.
    pub fn with_graceful_shutdown<F>(self, shutdown: F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { shutdown: Box::pin(shutdown), ..self }
    }
}

impl<M, S> IntoFuture for Serve<M>
where
    M: FnMut(Assignment) -> S + Send + 'static,
    S: Service<Delivery, Response: IsRecorded, Error: Into<Error>> + Send + 'static,
    S::Future: Send,
{
    type Output = Result<(), ServeError>;
    type IntoFuture = BoxFuture<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(run(self))
    }
}

impl<M> fmt::Debug for Serve<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Ends the driver when the future that waits for it is dropped.
struct Abandon(Stop);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

async fn run<M, S>(serve: Serve<M>) -> Result<(), ServeError>
where
    M: FnMut(Assignment) -> S + Send + 'static,
    S: Service<Delivery, Response: IsRecorded, Error: Into<Error>> + Send + 'static,
    S::Future: Send,
{
    let Serve { config, settings, topics, publisher, make_service, mut shutdown } = serve;
    let session = match settings.protocol {
        GroupProtocol::Classic(session) | GroupProtocol::Consumer(Some(session)) => session,
        GroupProtocol::Consumer(None) => select! {
            session = session::of_group(&config) => session,
            () = &mut shutdown => return Ok(()),
        },
    };
    let patience = patience(&settings, session);
    let stop = Stop::default();
    let abandon = Abandon(stop.clone());
    let (ended, mut end) = oneshot::channel();
    let spawn = task::spawner(Handle::current(), make_service);
    let metrics = Metrics::new();
    let driver = {
        let stop = stop.clone();
        move || {
            stop.wake_me();
            let driver = Driver::new(settings, topics, session, stop, spawn, publisher, metrics);
            // Nobody may be waiting any more.
            let _ = ended.send(driver.run());
        }
    };
    thread::Builder::new()
        .name("tidegate-kafka".to_owned())
        .spawn(driver)
        .map_err(|_| ServeError::Thread("could not be started"))?;
    let result = select! {
        result = &mut end => result,
        () = &mut shutdown => {
            stop.ask();
            // The deadline is kept here: the driver's thread may hang in a call
            // of the client's.
            match timeout(patience, end).await {
                Ok(result) => result,
                Err(_) => return Err(ServeError::Thread("did not end in time")),
            }
        }
    };
    drop(abandon);
    result.unwrap_or(Err(ServeError::Thread("panicked")))
}

/// How long an orderly end may take: a drain, the last commit behind a rebalance,
/// the close, twice where an event takes the place of our own drain.
fn patience(settings: &Settings, session: Session) -> Duration {
    let drain = settings.drain(session) * 2;
    drain + session.timeout * 2 + settings.close_deadline + Duration::from_secs(5)
}
