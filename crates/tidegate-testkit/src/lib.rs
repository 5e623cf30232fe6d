#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod probe;
mod strict;

pub use self::{
    probe::{
        ByRequest, Command, Event, Held, Locate, Located, NotALine, NotAPlace, NotAPoint,
        NotReached, Place, Point, ProbeLayer, ProbeService, Probes, When,
    },
    strict::{Echo, Strict},
};
