#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "generator")]
mod generator;
mod probe;
mod strict;

#[cfg(feature = "generator")]
pub use self::generator::{
    Account, Ledger, LedgerConfig, LedgerCounts, LedgerRecord, RecordKind, Transfer,
};

pub use self::{
    probe::{
        ByRequest, Command, Event, Held, Locate, Located, NotALine, NotAPlace, NotAPoint,
        NotReached, Place, Point, ProbeLayer, ProbeService, Probes, When,
    },
    strict::{Echo, Strict},
};
#[cfg(feature = "oracle")]
pub use tidegate_oracle as oracle;
