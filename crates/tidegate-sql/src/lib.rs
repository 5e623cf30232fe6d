#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod database;
mod dead_letter;
mod dialect;
mod effect;
mod error;
mod guard;
mod headers;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "migration")]
pub mod migration;
mod request;
pub mod schema;
mod service;
pub mod tables;
mod txn;

#[cfg(not(feature = "metrics"))]
#[path = "metrics_noop.rs"]
mod metrics;

// What an effect needs of SeaORM to write statements by hand.
pub use sea_orm::{ConnectionTrait, DbBackend, DbErr, Statement, TransactionTrait};

pub use self::{
    database::{Database, DatabaseOptions, Namespace, NotDurable, OpenError},
    dead_letter::{DeadLetterTable, LeaseEnded, Letter},
    effect::{Effect, EffectBatch, Handler, effect, effect_batch, effect_batch_fn, effect_fn},
    error::{EffectError, is_unreachable},
    guard::{EpochGuardLayer, EpochGuardService, GuardError},
    request::{InTransaction, TransactionRequest},
    service::EffectService,
    txn::{Txn, TxnOwner},
};
