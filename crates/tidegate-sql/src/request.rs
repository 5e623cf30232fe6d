use super::Txn;
use tidegate_core::{Batch, Delivery};

/// A request, and the transaction that it runs in.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InTransaction<R> {
    /// The transaction. Whoever made this begins and finishes it.
    pub txn: Txn,
    /// What to do in it.
    pub request: R,
}

impl<R> InTransaction<R> {
    /// Puts a request in a transaction.
    pub fn new(txn: Txn, request: R) -> Self {
        Self { txn, request }
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
