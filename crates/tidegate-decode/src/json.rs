use std::{fmt, marker::PhantomData};

use serde::de::DeserializeOwned;
use tidegate_core::{Decoder, Record};

use crate::DecodeLayer;

/// Decodes payloads as JSON.
///
/// A record without a payload, a tombstone, is decoded as `null`: a type such
/// as `Option<Transfer>` takes it, and for one that does not, the tombstone is
/// undecodable. A payload that *is* `null` looks the same; who must tell the
/// two apart writes a decoder of their own.
pub struct Json<T> {
    value: PhantomData<fn() -> T>,
}

/// A payload is not the JSON of a value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// It is other JSON, or none.
    #[error(transparent)]
    Payload(#[from] serde_json::Error),
    /// There is no payload, and the value's type does not take `null`.
    #[error("the record is a tombstone, which the value's type does not take")]
    Tombstone,
}

// ===== impl Json =====

impl<T: DeserializeOwned> Decoder for Json<T> {
    type Value = T;
    type Error = JsonError;

    fn decode(&self, record: &Record) -> Result<T, JsonError> {
        match &record.payload {
            Some(payload) => Ok(serde_json::from_slice(payload)?),
            None => serde_json::from_str("null").map_err(|_| JsonError::Tombstone),
        }
    }
}

impl<T> Default for Json<T> {
    fn default() -> Self {
        Self { value: PhantomData }
    }
}

impl<T> Clone for Json<T> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<T> fmt::Debug for Json<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Json")
    }
}

// ===== impl DecodeLayer =====

// Of one type, so that `DecodeLayer::json::<T>()` names the value's type alone.
impl DecodeLayer<Json<()>> {
    /// Creates a layer that decodes payloads as JSON; see [`Json`] for
    /// tombstones.
    #[must_use]
    pub fn json<T: DeserializeOwned>() -> DecodeLayer<Json<T>> {
        DecodeLayer::new(Json::default())
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use tidegate_core::{Decoder as _, Record, TopicPartition};

    use super::{Json, JsonError};

    #[derive(Debug, Deserialize, PartialEq)]
    struct Transfer {
        id: u64,
    }

    fn record(payload: Option<&'static str>) -> Record {
        let record = Record::new(TopicPartition::new("transfers", 0), 0, "");
        Record { payload: payload.map(Into::into), ..record }
    }

    #[test]
    fn a_payload_is_decoded() {
        let decoded = Json::<Transfer>::default().decode(&record(Some(r#"{"id":7}"#))).unwrap();
        assert_eq!(decoded, Transfer { id: 7 });
    }

    #[test]
    fn other_json_says_what_is_wrong_and_where() {
        let error = Json::<Transfer>::default().decode(&record(Some("{}"))).unwrap_err();
        assert_eq!(error.to_string(), "missing field `id` at line 1 column 2");
        let empty = Json::<Transfer>::default().decode(&record(Some(""))).unwrap_err();
        assert!(matches!(empty, JsonError::Payload(error) if error.is_eof()));
    }

    #[test]
    fn a_tombstone_is_null_for_a_type_that_takes_it() {
        let decoded = Json::<Option<Transfer>>::default().decode(&record(None)).unwrap();
        assert_eq!(decoded, None);
        let error = Json::<Transfer>::default().decode(&record(None)).unwrap_err();
        assert!(matches!(error, JsonError::Tombstone));
    }
}
