use std::{
    thread,
    time::{self, Duration},
};

use anyhow::{Result, bail};

use super::signals::is_interrupted;

const PAUSE: Duration = Duration::from_millis(20);

/// Asks again and again, until there is an answer or `limit` has passed.
#[expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "other processes live by the real clock, and tell nobody when they are ready"
)]
pub(super) fn until<T>(
    limit: Duration,
    mut ask: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let start = time::Instant::now();
    loop {
        if let Some(answer) = ask()? {
            return Ok(Some(answer));
        }
        if start.elapsed() >= limit {
            return Ok(None);
        }
        thread::sleep(PAUSE);
    }
}

/// As [`until`], but gives up when this process has been told to end.
pub(super) fn unless_interrupted<T>(
    limit: Duration,
    mut ask: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    until(limit, || {
        if is_interrupted() {
            bail!("interrupted");
        }
        ask()
    })
}
