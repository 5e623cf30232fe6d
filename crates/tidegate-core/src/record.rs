use std::{fmt, sync::Arc};

use bytes::Bytes;

/// A partition of a topic.
///
/// Cloning it copies a reference count.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition's number, from 0.
    pub partition: i32,
}

/// One Kafka record.
///
/// Cloning it copies reference counts, not bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where it was read.
    pub partition: TopicPartition,
    /// The offset within the partition.
    pub offset: i64,
    /// Milliseconds since the Unix epoch, as the topic's timestamp type defines
    /// them; -1 where the record has none.
    pub timestamp: i64,
    /// The key; `None` is a record without one, which differs from an empty one.
    pub key: Option<Bytes>,
    /// The payload; `None` is a tombstone, which differs from an empty one.
    pub payload: Option<Bytes>,
    /// The headers.
    pub headers: Headers,
}

/// The headers of a record, in the order in which they were written.
///
/// A name may occur more than once. No headers take no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Option<Arc<[Header]>>);

/// One header of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its name.
    pub name: Box<str>,
    /// Its value; `None` is a header without one.
    pub value: Option<Bytes>,
}

// ===== impl TopicPartition =====

impl TopicPartition {
    /// Names a partition.
    #[must_use]
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

// ===== impl Record =====

impl Record {
    /// Creates a record with a payload and nothing else.
    #[must_use]
    pub fn new(partition: TopicPartition, offset: i64, payload: impl Into<Bytes>) -> Self {
        Self {
            partition,
            offset,
            timestamp: -1,
            key: None,
            payload: Some(payload.into()),
            headers: Headers::default(),
        }
    }

    /// Sets the key.
    #[must_use]
    pub fn with_key(self, key: impl Into<Bytes>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// Sets the headers.
    #[must_use]
    pub fn with_headers(self, headers: impl IntoIterator<Item = Header>) -> Self {
        Self { headers: headers.into_iter().collect(), ..self }
    }

    /// Its bytes in key, payload and headers: what counts against the bounds
    /// of a queue and of a source.
    #[must_use]
    pub fn size(&self) -> usize {
        let headers: usize =
            self.headers.iter().map(|header| header.name.len() + len(header.value.as_ref())).sum();
        len(self.key.as_ref()) + len(self.payload.as_ref()) + headers
    }
}

fn len(bytes: Option<&Bytes>) -> usize {
    bytes.map_or(0, Bytes::len)
}

// ===== impl Headers =====

impl Headers {
    /// The headers, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Header> {
        self.0.as_deref().unwrap_or_default().iter()
    }

    /// The last header of that name, which is the one that counts in Kafka.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Header> {
        self.iter().rev().find(|header| &*header.name == name)
    }
}

impl<'a> IntoIterator for &'a Headers {
    type Item = &'a Header;
    type IntoIter = std::slice::Iter<'a, Header>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl FromIterator<Header> for Headers {
    fn from_iter<I: IntoIterator<Item = Header>>(headers: I) -> Self {
        let headers: Arc<[Header]> = headers.into_iter().collect();
        Self((!headers.is_empty()).then_some(headers))
    }
}

// ===== impl Header =====

impl Header {
    /// Creates a header with a value.
    #[must_use]
    pub fn new(name: impl Into<Box<str>>, value: impl Into<Bytes>) -> Self {
        Self { name: name.into(), value: Some(value.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Header, Record, TopicPartition};

    #[test]
    fn size_counts_key_payload_and_headers() {
        let record = Record::new(TopicPartition::new("t", 0), 7, "four");
        assert_eq!(record.size(), 4);
        let record = record.with_key("ab").with_headers([Header::new("id", "xyz")]);
        assert_eq!(record.size(), 4 + 2 + 2 + 3);
        let tombstone = Record { payload: None, ..record };
        assert_eq!(tombstone.size(), 2 + 2 + 3);
    }

    #[test]
    fn the_last_header_of_a_name_counts() {
        let headers = [Header::new("a", "1"), Header::new("b", "2"), Header::new("a", "3")];
        let record = Record::new(TopicPartition::new("t", 0), 0, "").with_headers(headers);
        assert_eq!(record.headers.get("a"), Some(&Header::new("a", "3")));
        assert_eq!(record.headers.get("c"), None);
    }
}
