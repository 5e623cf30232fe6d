use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

use crate::member::PATIENCE;

const PAUSE: Duration = Duration::from_millis(20);

/// Waits until something is so, which nobody tells.
pub(crate) async fn until<T>(
    what: &str,
    mut holds: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = holds().await? {
            return Ok(found);
        }
        if Instant::now() > deadline {
            bail!("it did not happen within {} s: {what}", PATIENCE.as_secs());
        }
        sleep(PAUSE).await;
    }
}
