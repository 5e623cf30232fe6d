use super::{BoxError, Record};

/// Turns a record into a value.
///
/// A function `Fn(&Record) -> Result<T, E>` is one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not decode records",
    note = "a decoder is `DecodeLayer::json::<T>()`, or a function `fn(&Record) -> Result<T, E>`"
)]
pub trait Decoder {
    /// What a record becomes.
    type Value;
    /// Why it could not.
    type Error: Into<BoxError>;

    /// Decodes one record.
    ///
    /// # Errors
    ///
    /// When the record does not hold a value. It will not hold one the next
    /// time either: the record is poison.
    fn decode(&self, record: &Record) -> Result<Self::Value, Self::Error>;
}

impl<F, T, E> Decoder for F
where
    F: Fn(&Record) -> Result<T, E>,
    E: Into<BoxError>,
{
    type Value = T;
    type Error = E;

    fn decode(&self, record: &Record) -> Result<T, E> {
        self(record)
    }
}
