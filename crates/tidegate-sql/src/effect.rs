use std::future::Future;

use super::{EffectError, EffectService, Txn};

/// What the application does with a value, in a transaction.
///
/// Write it as an `async fn` and pass that to [`effect_fn`]. An effect with
/// state is a type of its own, passed to [`effect`]:
///
/// ```
/// use sea_orm::{ConnectionTrait, Statement};
/// use tidegate_sql::{DbErr, Effect, Txn, effect};
///
/// struct Transfer {
///     account: String,
///     amount: i64,
/// }
///
/// struct Ledger {
///     fee: i64,
/// }
///
/// impl Effect<Transfer> for Ledger {
///     type Error = DbErr;
///
///     async fn apply(&self, txn: &Txn, transfer: &Transfer) -> Result<(), DbErr> {
///         let sql = "UPDATE account SET balance = balance + $1 WHERE name = $2";
///         let values = [(transfer.amount - self.fee).into(), transfer.account.clone().into()];
///         let backend = txn.get_database_backend();
///         txn.execute_raw(Statement::from_sql_and_values(backend, sql, values)).await?;
///         Ok(())
///     }
/// }
///
/// let service = effect(Ledger { fee: 1 });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an effect on `{T}`",
    note = "implement `Effect<{T}>`, or use `effect_fn` with an `async fn(&Txn, &{T})`"
)]
pub trait Effect<T>: Send + Sync + 'static {
    /// How it fails.
    type Error: Into<EffectError>;

    /// Applies one value.
    fn apply(&self, txn: &Txn, value: &T) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// What the application does with all values of a batch at once.
///
/// The values are references, since the batch that an inbox lets through is a
/// selection of a larger one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an effect on batches of `{T}`",
    note = "implement `EffectBatch<{T}>`, or use `effect_batch_fn` with an `async fn(&Txn, &[&{T}])`"
)]
pub trait EffectBatch<T>: Send + Sync + 'static {
    /// How it fails.
    type Error: Into<EffectError>;

    /// Applies the values, which are never none.
    fn apply(
        &self,
        txn: &Txn,
        values: &[&T],
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// An `async fn` of two arguments whose future is `Send`.
///
/// Implemented for every such function, and not by hand. (`AsyncFn` would say
/// it in one word, but cannot say yet that its futures are `Send`.)
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an `async fn` of a transaction and a `{Value}`",
    label = "an effect is an `async fn(&Txn, &T) -> Result<(), E>`",
    note = "closures that own what they capture are not: implement `Effect` for a type instead"
)]
pub trait Handler<Transaction, Value> {
    /// How it fails.
    type Error: Into<EffectError>;
    /// What it returns.
    type Future: Future<Output = Result<(), Self::Error>> + Send;

    /// Calls the function.
    fn handle(&self, transaction: Transaction, value: Value) -> Self::Future;
}

/// An effect made of a function.
struct FromFn<F>(F);

/// Makes the innermost service of a stack from an effect.
///
/// It is applied to each delivery, in order. When it fails, the queue knows at
/// which one.
pub fn effect<A, T>(effect: A) -> EffectService<T>
where
    A: Effect<T>,
    T: Send + Sync + 'static,
{
    EffectService::each(effect)
}

/// Makes the innermost service of a stack from a function of one value.
///
/// See [`effect`].
pub fn effect_fn<F, E, T>(apply: F) -> EffectService<T>
where
    F: for<'a> Handler<&'a Txn, &'a T, Error = E> + Send + Sync + 'static,
    E: Into<EffectError>,
    T: Send + Sync + 'static,
{
    effect(FromFn(apply))
}

/// Makes the innermost service of a stack from an effect on whole batches.
///
/// When it fails without naming a culprit, the queue halves the batch until it
/// finds it.
pub fn effect_batch<A, T>(effect: A) -> EffectService<T>
where
    A: EffectBatch<T>,
    T: Send + Sync + 'static,
{
    EffectService::whole(effect)
}

/// Makes the innermost service of a stack from a function of a whole batch.
///
/// See [`effect_batch`].
pub fn effect_batch_fn<F, E, T>(apply: F) -> EffectService<T>
where
    F: for<'a> Handler<&'a Txn, &'a [&'a T], Error = E> + Send + Sync + 'static,
    E: Into<EffectError>,
    T: Send + Sync + 'static,
{
    effect_batch(FromFn(apply))
}

impl<F, Transaction, Value, Fut, E> Handler<Transaction, Value> for F
where
    F: Fn(Transaction, Value) -> Fut,
    Fut: Future<Output = Result<(), E>> + Send,
    E: Into<EffectError>,
{
    type Error = E;
    type Future = Fut;

    fn handle(&self, transaction: Transaction, value: Value) -> Fut {
        self(transaction, value)
    }
}

impl<F, E, T> Effect<T> for FromFn<F>
where
    F: for<'a> Handler<&'a Txn, &'a T, Error = E> + Send + Sync + 'static,
    E: Into<EffectError>,
    T: Sync,
{
    type Error = E;

    async fn apply(&self, txn: &Txn, value: &T) -> Result<(), E> {
        self.0.handle(txn, value).await
    }
}

impl<F, E, T> EffectBatch<T> for FromFn<F>
where
    F: for<'a> Handler<&'a Txn, &'a [&'a T], Error = E> + Send + Sync + 'static,
    E: Into<EffectError>,
    T: Sync,
{
    type Error = E;

    async fn apply(&self, txn: &Txn, values: &[&T]) -> Result<(), E> {
        self.0.handle(txn, values).await
    }
}
