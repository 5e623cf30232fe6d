#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(feature = "broker", feature = "proxy"))]
mod api_key;
#[cfg(feature = "broker")]
mod broker;
mod gate;
#[cfg(feature = "generator")]
mod generator;
mod probe;
#[cfg(feature = "proxy")]
mod proxy;
mod strict;

#[cfg(any(feature = "broker", feature = "proxy"))]
pub use self::api_key::ApiKey;
#[cfg(feature = "broker")]
pub use self::broker::{
    Broker, BrokerConfig, BrokerFailure, Cluster, ErrorCode, NewRecord, NotConsumed, Request,
};
#[cfg(feature = "generator")]
pub use self::generator::{
    Account, Ledger, LedgerConfig, LedgerCounts, LedgerRecord, RecordKind, Transfer,
};

#[cfg(feature = "proxy")]
pub use self::proxy::{HeldTraffic, Message, Mode, NoTraffic, Proxy, Toward, Traffic, Wire};
pub use self::{
    probe::{
        ByRequest, Command, Event, Held, Locate, Located, NotALine, NotAPlace, NotAPoint,
        NotReached, Place, Point, ProbeLayer, ProbeService, Probes, When,
    },
    strict::{Echo, Strict},
};
#[cfg(feature = "oracle")]
pub use tidegate_oracle as oracle;
