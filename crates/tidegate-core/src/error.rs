use std::{convert::Infallible, error::Error as StdError, fmt, sync::Arc};

use super::{Record, TopicPartition};

/// An error that Tower's own layers speak.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// What to do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Trying the same again may succeed: a retry takes it.
    Transient,
    /// This record can never succeed: a dead letter takes it.
    Poison,
    /// The partition is not ours to work on now: its next owner takes it.
    Fenced,
    /// Nothing can succeed until a person acts: the partition stops.
    Fatal,
}

/// The record that a failure is blamed on.
///
/// A topic, partition and offset, and not an index: layers in between make
/// batches smaller, and a parked delta may come from another partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Culprit {
    /// Where it was read.
    pub partition: TopicPartition,
    /// Its offset there.
    pub offset: i64,
}

/// Tells the class of an error.
///
/// Layers that stand where Tower's own layers may stand under them ask through
/// this, because those turn errors into boxes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whether trying again may help",
    note = "use `tidegate_core::Error`, or Tower's `BoxError`, as the service's error"
)]
pub trait Classify {
    /// What to do about it.
    fn class(&self) -> Class;
}

/// The error of every Tidegate service.
///
/// Its [`class`](Self::class) is for decisions; its source is the typed error
/// of the layer where it arose, for whoever wants to know.
///
/// A clone shares the source, because a transaction that fails, fails for all
/// the deliveries in it.
#[derive(Clone)]
pub struct Error {
    class: Class,
    // Boxed: few failures name a culprit, and an error is moved a lot.
    culprit: Option<Box<Culprit>>,
    source: Arc<dyn StdError + Send + Sync>,
}

// ===== impl Class =====

impl Class {
    /// Its name in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Poison => "poison",
            Self::Fenced => "fenced",
            Self::Fatal => "fatal",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// ===== impl Culprit =====

impl Culprit {
    /// Blames a record.
    #[must_use]
    pub fn of(record: &Record) -> Self {
        Self { partition: record.partition.clone(), offset: record.offset }
    }

    /// Whether it is this record that is blamed.
    #[must_use]
    pub fn is(&self, record: &Record) -> bool {
        self.offset == record.offset && self.partition == record.partition
    }
}

impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}", self.partition, self.offset)
    }
}

// ===== impl Error =====

impl Error {
    /// Wraps what happened.
    pub fn new(class: Class, source: impl Into<BoxError>) -> Self {
        Self { class, culprit: None, source: Arc::from(source.into()) }
    }

    /// Blames one record.
    ///
    /// A queue that takes a failed batch apart then splits it there instead of
    /// in the middle.
    #[must_use]
    pub fn with_culprit(self, culprit: Culprit) -> Self {
        Self { culprit: Some(Box::new(culprit)), ..self }
    }

    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class
    }

    /// The record at fault, if one is known to be.
    #[must_use]
    pub fn culprit(&self) -> Option<&Culprit> {
        self.culprit.as_deref()
    }

    /// The typed error of the layer where it arose.
    #[must_use]
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        self.source.downcast_ref()
    }

    /// This error and all its causes, in one line: for a log, or a column of
    /// dead letters.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = StdError::source(self);
        while let Some(error) = cause {
            let said = error.to_string();
            // Some errors print their cause, and have it as their source too.
            if !text.ends_with(&said) {
                text.push_str(": ");
                text.push_str(&said);
            }
            cause = error.source();
        }
        text
    }
}

impl Classify for Error {
    fn class(&self) -> Class {
        self.class
    }
}

impl Classify for BoxError {
    // What nobody classified may be a timeout of Tower's. Trying again loses
    // nothing, which cannot be said of a dead letter.
    fn class(&self) -> Class {
        self.downcast_ref::<Error>().map_or(Class::Transient, Error::class)
    }
}

impl From<BoxError> for Error {
    /// Finds the `Error` that Tower's layers put in a box, or wraps what they
    /// made themselves, as [`Class::Transient`].
    fn from(error: BoxError) -> Self {
        match error.downcast::<Self>() {
            Ok(error) => *error,
            Err(error) => Self::new(error.class(), error),
        }
    }
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.class {
            Class::Transient => "a delivery failed for now",
            Class::Poison => "a record can never be applied",
            Class::Fenced => "the partition is not ours to work on",
            Class::Fatal => "the partition cannot go on",
        })?;
        self.culprit.as_ref().map_or(Ok(()), |culprit| write!(f, ", {culprit}"))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("class", &self.class)
            .field("culprit", &self.culprit)
            .field("source", &self.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::{BoxError, Class, Classify as _, Culprit, Error};
    use crate::TopicPartition;

    #[derive(Debug, PartialEq, thiserror::Error)]
    #[error("no account {0}")]
    struct NoAccount(u64);

    fn culprit() -> Culprit {
        Culprit { partition: TopicPartition::new("transfers", 3), offset: 7 }
    }

    #[test]
    fn an_error_keeps_its_class_through_a_box() {
        let boxed: BoxError = Error::new(Class::Poison, NoAccount(5)).into();
        assert_eq!(boxed.class(), Class::Poison);
        let error = Error::from(boxed);
        assert_eq!(error.downcast_ref(), Some(&NoAccount(5)));
    }

    #[test]
    fn what_nobody_classified_is_tried_again() {
        let boxed: BoxError = "elapsed".into();
        assert_eq!(boxed.class(), Class::Transient);
        assert_eq!(Error::from(boxed).class(), Class::Transient);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot look it up: {0}")]
    struct Talkative(#[source] NoAccount);

    #[test]
    fn a_cause_that_is_printed_already_is_not_printed_again() {
        let error = Error::new(Class::Fatal, Talkative(NoAccount(5)));
        let chain = "the partition cannot go on: cannot look it up: no account 5";
        assert_eq!(error.chain(), chain);
    }

    #[test]
    fn a_chain_says_each_cause_once() {
        let error = Error::new(Class::Poison, NoAccount(5)).with_culprit(culprit());
        let chain = "a record can never be applied, transfers-3 at offset 7: no account 5";
        assert_eq!(error.chain(), chain);
    }
}
