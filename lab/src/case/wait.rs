use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

use crate::member::PATIENCE;

const PAUSE: Duration = Duration::from_millis(20);

/// Waits until something is so, which nobody tells.
pub(crate) async fn until<T>(
    what: &str,
    holds: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    until_within(PATIENCE, what, holds).await
}

/// The same, with another patience.
pub(crate) async fn until_within<T>(
    patience: Duration,
    what: &str,
    mut holds: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = holds().await? {
            return Ok(found);
        }
        if Instant::now() > deadline {
            bail!("it did not happen within {} s: {what}", patience.as_secs());
        }
        sleep(PAUSE).await;
    }
}
