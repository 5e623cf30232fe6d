//! Layers that are wrong on purpose, and one that is merely rude.

mod cancelled;
mod detached;
mod early;
mod highest;
mod marker_first;
mod unmarked;

use std::pin::Pin;

pub(super) use self::{
    cancelled::CancelledCompletedLayer, detached::DetachedLayer, early::CompletedEarlyLayer,
    highest::HighestFinishedLayer, marker_first::MarkerFirstLayer, unmarked::UnmarkedLayer,
};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
