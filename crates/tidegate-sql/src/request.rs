use std::sync::Arc;

use tidegate_core::{Batch, Delivery, Fingerprint, MessageId, Record};

use crate::{Txn, tables::Mark};

/// A request, and the transaction that it runs in.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InTransaction<R> {
    /// The transaction. Whoever made this begins and finishes it.
    pub txn: Txn,
    /// What to do in it.
    pub request: R,
    marks: Option<Arc<[Mark]>>,
}

impl<R> InTransaction<R> {
    /// Puts a request in a transaction.
    pub fn new(txn: Txn, request: R) -> Self {
        Self { txn, request, marks: None }
    }

    /// Says which messages the deliveries of the request are, in their order.
    #[must_use]
    pub fn with_marks(self, marks: Arc<[Mark]>) -> Self {
        Self { marks: Some(marks), ..self }
    }

    /// Which message the delivery at `index` is, whose record this is.
    ///
    /// If nobody has said, it is known by its place.
    #[must_use]
    pub fn mark(&self, index: usize, record: &Record) -> Mark {
        let said = self.marks.as_ref().and_then(|marks| marks.get(index)).copied();
        said.unwrap_or_else(|| Mark {
            id: MessageId::of_offset(record),
            fingerprint: Fingerprint::of_record(record),
        })
    }
}

/// A batch in a transaction: what layers under the inbox are called with.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not in a transaction: the `InboxLayer` is missing, or stands too low",
    label = "`SequencerLayer`, `effect_fn` and `effect_batch_fn` work in the transaction of an `InboxLayer`",
    note = "write `QueueLayer`, `InboxLayer`, `SequencerLayer` and the effect in this order"
)]
pub trait TransactionRequest: sealed::Sealed {
    /// What the records were decoded to.
    type Value;

    /// The batch and its transaction, owned.
    fn into_transaction(self) -> InTransaction<Batch<Delivery<Self::Value>>>;
}

impl<T> TransactionRequest for InTransaction<Batch<Delivery<T>>> {
    type Value = T;

    fn into_transaction(self) -> Self {
        self
    }
}

mod sealed {
    pub trait Sealed {}

    impl<R> Sealed for super::InTransaction<R> {}
}
