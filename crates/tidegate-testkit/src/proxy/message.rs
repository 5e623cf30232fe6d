use std::{fmt, sync::Arc};

use crate::ApiKey;

/// Where the messages of a client begin and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wire {
    /// Nobody knows: what is read at once is a message.
    Raw,
    /// The protocol of Kafka: a length of four bytes, and so many bytes.
    Kafka,
    /// The protocol of PostgreSQL, version 3: a letter and a length, but for
    /// the first message, which has no letter.
    Postgres,
}

/// Tells a message from others.
#[derive(Clone)]
pub struct Message {
    is: Arc<Predicate>,
}

type Predicate = dyn Fn(&[u8]) -> bool + Send + Sync;

// ===== impl Message =====

impl Message {
    /// A message of which a function says so. It is given the whole message,
    /// with its length.
    pub fn new(is: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        Self { is: Arc::new(is) }
    }

    /// Any message.
    #[must_use]
    pub fn any() -> Self {
        Self::new(|_| true)
    }

    /// A message that contains these bytes.
    pub fn containing(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::new(move |message| contains(message, &bytes))
    }

    /// A request of Kafka, by its kind: with [`ApiKey::OFFSET_COMMIT`], the
    /// commit of offsets.
    #[must_use]
    pub fn request(api: ApiKey) -> Self {
        // The key follows the length.
        Self::new(move |message| message.get(4..6) == Some(&api.0.to_be_bytes()))
    }

    /// A simple query of PostgreSQL, by its text, in capitals or not: as
    /// `COMMIT` is sent, and all that has no parameters.
    #[must_use]
    pub fn query(text: &str) -> Self {
        let text = text.to_owned();
        Self::new(move |message| {
            let query = message.strip_prefix(b"Q").and_then(|rest| rest.get(4..));
            let query = query.and_then(|query| query.strip_suffix(&[0]));
            query.is_some_and(|query| {
                let query = query.trim_ascii().strip_suffix(b";").unwrap_or(query.trim_ascii());
                query.eq_ignore_ascii_case(text.as_bytes())
            })
        })
    }

    pub(super) fn is(&self, message: &[u8]) -> bool {
        (self.is)(message)
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").finish_non_exhaustive()
    }
}

fn contains(message: &[u8], bytes: &[u8]) -> bool {
    bytes.is_empty() || message.windows(bytes.len()).any(|window| window == bytes)
}

#[cfg(test)]
mod tests {
    use super::Message;
    use crate::ApiKey;

    #[track_caller]
    fn check(message: &Message, is: &[&[u8]], is_not: &[&[u8]]) {
        for bytes in is {
            assert!(message.is(bytes), "{bytes:?}");
        }
        for bytes in is_not {
            assert!(!message.is(bytes), "{bytes:?}");
        }
    }

    #[test]
    fn a_request_of_kafka_is_known_by_its_key() {
        let commit = Message::request(ApiKey::OFFSET_COMMIT);
        check(&commit, &[b"\0\0\0\x04\0\x08\0\x09"], &[b"\0\0\0\x04\0\x09\0\x08", b"\0\0\0\x01\0"]);
    }

    #[test]
    fn a_query_of_postgresql_is_known_by_its_text() {
        let commit = Message::query("COMMIT");
        check(
            &commit,
            &[b"Q\0\0\0\x0bCOMMIT\0", b"Q\0\0\0\x0bcommit\0", b"Q\0\0\0\x0e commit; \0"],
            &[b"Q\0\0\0\x13COMMIT PREPARED\0", b"P\0\0\0\x0bCOMMIT\0", b"Q", b"Q\0\0\0\x04", b""],
        );
    }

    #[test]
    fn bytes_are_found_anywhere() {
        check(&Message::containing("bc"), &[b"abcd", b"bc"], &[b"b", b"", b"bxc"]);
        check(&Message::any(), &[b"", b"a"], &[]);
    }
}
