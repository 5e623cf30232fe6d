use std::sync::Arc;

use tidegate_core::{Batch, Delivery, MessageId, Record};

use super::Txn;

/// A request, and the transaction that it runs in.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InTransaction<R> {
    /// The transaction. Whoever made this begins and finishes it.
    pub txn: Txn,
    /// What to do in it.
    pub request: R,
    ids: Option<Arc<[MessageId]>>,
}

impl<R> InTransaction<R> {
    /// Puts a request in a transaction.
    pub fn new(txn: Txn, request: R) -> Self {
        Self { txn, request, ids: None }
    }

    /// Says which messages the deliveries of the request are, in their order.
    #[must_use]
    pub fn with_ids(self, ids: Arc<[MessageId]>) -> Self {
        Self { ids: Some(ids), ..self }
    }

    /// Which message the delivery at `index` is, whose record this is: by its
    /// place, if nobody has said.
    #[must_use]
    pub fn message_id(&self, index: usize, record: &Record) -> MessageId {
        let id = self.ids.as_ref().and_then(|ids| ids.get(index));
        id.copied().unwrap_or_else(|| MessageId::of_offset(record))
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
