//! The headers of a record, as the bytes of a column.
//!
//! Each is a name and a value, both with their length in front, in 32 bits, big
//! end first. A value that is not there has the length 2^32 - 1.

use bytes::{Buf as _, Bytes};
use sea_orm::DbErr;
use tidegate_core::{Header, Headers};

const NO_VALUE: u32 = u32::MAX;

/// The bytes; of no headers, none.
pub(crate) fn encode(headers: &Headers) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for header in headers {
        put(&mut bytes, Some(header.name.as_bytes()));
        put(&mut bytes, header.value.as_deref());
    }
    (!bytes.is_empty()).then_some(bytes)
}

/// The headers that [`encode`] made bytes of.
pub(crate) fn decode(bytes: Option<Vec<u8>>) -> Result<Headers, DbErr> {
    let mut bytes = Bytes::from(bytes.unwrap_or_default());
    let mut headers = Vec::new();
    while !bytes.is_empty() {
        let name = take(&mut bytes)?.ok_or_else(malformed)?;
        let name = str::from_utf8(&name).map_err(|_| malformed())?;
        headers.push(Header { name: name.into(), value: take(&mut bytes)? });
    }
    Ok(headers.into_iter().collect())
}

fn put(bytes: &mut Vec<u8>, value: Option<&[u8]>) {
    // No broker takes a header of four gigabytes.
    let length = value.map_or(NO_VALUE, |value| u32::try_from(value.len()).unwrap_or(NO_VALUE));
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(value.unwrap_or_default());
}

fn take(bytes: &mut Bytes) -> Result<Option<Bytes>, DbErr> {
    let length = bytes.try_get_u32().map_err(|_| malformed())?;
    if length == NO_VALUE {
        return Ok(None);
    }
    let length = usize::try_from(length).map_err(|_| malformed())?;
    if bytes.len() < length {
        return Err(malformed());
    }
    Ok(Some(bytes.split_to(length)))
}

fn malformed() -> DbErr {
    DbErr::Type("the stored headers of a record are malformed".to_owned())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::{collection::vec, option, prelude::*};
    use tidegate_core::{Header, Headers};

    use super::{decode, encode};

    fn header() -> impl Strategy<Value = Header> {
        let value = option::of(vec(any::<u8>(), 0..9).prop_map(Bytes::from));
        (".{0,9}", value).prop_map(|(name, value)| Header { name: name.into(), value })
    }

    proptest! {
        #[test]
        fn headers_come_back_as_they_were(headers in vec(header(), 0..5)) {
            let headers: Headers = headers.into_iter().collect();
            prop_assert_eq!(decode(encode(&headers)).unwrap(), headers);
        }

        #[test]
        fn bytes_that_are_no_headers_are_an_error_and_no_panic(bytes in vec(any::<u8>(), 0..40)) {
            let _ = decode(Some(bytes));
        }
    }

    #[test]
    fn no_headers_are_no_bytes() {
        assert_eq!(encode(&Headers::default()), None);
        assert_eq!(decode(None).unwrap(), Headers::default());
    }
}
