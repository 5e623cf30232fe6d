//! Guarded transactions, and the effects that run in them.

mod database;
mod effect;
mod error;
mod request;
mod rows;
mod service;
mod txn;

pub use sea_orm::DbErr;

pub use self::{
    database::{Database, Namespace, NotDurable, OpenError},
    effect::{Effect, EffectBatch, Handler, effect, effect_batch, effect_batch_fn, effect_fn},
    error::EffectError,
    request::{InTransaction, TransactionRequest},
    rows::Rows,
    service::EffectService,
    txn::{Txn, TxnOwner},
};
