//! What the driver logs, as far as the lab goes by it.

/// Offsets are on their way to the coordinator.
pub(crate) const COMMIT_SENT: &str = "a commit is sent";
/// It has taken them.
pub(crate) const COMMIT_ACCEPTED: &str = "a commit is accepted";
/// It has not, or does not answer.
pub(crate) const COMMIT_REFUSED: &str = "a commit was not accepted";
/// It has answered when nobody waited any more.
pub(crate) const COMMIT_LATE: &str = "the result of a commit came after its membership had ended";
/// The member has partitions, or none.
pub(crate) const ASSIGNED: &str = "partitions assigned";
/// It is to give some back, or has lost them.
pub(crate) const REVOKED: &str = "partitions revoked";
/// The driver has taken them for lost.
pub(crate) const LOST: &str = "partitions are lost";
/// It has given some back.
pub(crate) const GIVEN_BACK: &str = "partitions given back";
/// The last proof of the membership is too old.
pub(crate) const SUSPENDED: &str = "no commit was answered: work is suspended";
/// The client is made anew.
pub(crate) const CLIENT_REPLACED: &str = "the client is replaced";
/// A partition is worked on.
pub(crate) const STACK_STARTS: &str = "a stack starts";
/// A partition cannot go on, until it is tried again.
pub(crate) const STOPPED: &str = "the partition is stopped";
/// A partition was revoked, and its work did not end in time.
pub(crate) const DRAIN_GIVEN_UP: &str = "the drain's deadline has passed";
/// It did.
pub(crate) const DRAINED: &str = "a partition is drained";
/// The group has committed nothing for a partition.
pub(crate) const STARTS_HERE: &str = "nothing is committed: starting here";
/// What it has committed is asked for again.
pub(crate) const START_UNKNOWN: &str = "where it starts is not known yet";
/// What the client says by its error callback.
pub(crate) const CLIENT_ERROR: &str = "the client reports an error";

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    /// An experiment that waits for something else to be said would wait in vain; one
    /// that sees to it that nothing is said would not see anything.
    #[test]
    fn the_driver_says_it() {
        let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/tidegate-kafka/src");
        let said = sources(&driver);
        let own = include_str!("says.rs");
        let texts = own.lines().filter_map(|line| line.strip_prefix("pub(crate) const "));
        for text in texts.map(|line| line.split('"').nth(1).unwrap()) {
            assert!(said.contains(&format!("\"{text}\"")), "nobody says `{text}`");
        }
    }

    fn sources(path: &Path) -> String {
        if path.is_dir() {
            fs::read_dir(path).unwrap().map(|it| sources(&it.unwrap().path())).collect()
        } else {
            fs::read_to_string(path).unwrap()
        }
    }
}
