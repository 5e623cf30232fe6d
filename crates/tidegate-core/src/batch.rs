use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{Culprit, Delivery};

/// Deliveries that a lane hands down together, in order, all under one lease.
///
/// A batch is never empty. Its items are shared: cloning it, splitting it and
/// selecting from it copy pointers. That is what lets a retry, a bisection and
/// an inbox take a batch apart without `T: Clone`.
#[derive(Debug)]
pub struct Batch<D> {
    items: Vec<Arc<D>>,
    // Shared by the clones, so that a layer far below can tell the queue.
    waited: Arc<AtomicU64>,
}

impl<D> Batch<D> {
    /// Makes a batch of what is there, or `None` of nothing.
    #[must_use]
    pub fn new(items: Vec<Arc<D>>) -> Option<Self> {
        (!items.is_empty()).then(|| Self { items, waited: Arc::default() })
    }

    /// Makes a batch of one.
    pub fn of_one(item: D) -> Self {
        Self { items: vec![Arc::new(item)], waited: Arc::default() }
    }

    /// The first item.
    ///
    /// # Panics
    ///
    /// Never: a batch is not empty.
    #[must_use]
    pub fn first(&self) -> &D {
        self.items.first().expect("a batch is never empty")
    }

    /// Splits at `mid`; a side without items is `None`.
    #[must_use]
    pub fn split_at(mut self, mid: usize) -> (Option<Self>, Option<Self>) {
        let right = self.items.split_off(mid.min(self.items.len()));
        (Self::new(self.items), Self::new(right))
    }

    /// Says that the batch waited, for a connection or between two tries.
    ///
    /// A queue bounds the time for which a batch *runs*; what was waited does
    /// not count against that bound. The clones of a batch share the sum.
    pub fn waited(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.waited.fetch_add(nanos, Ordering::Relaxed);
    }

    /// How long the batch, or a clone of it, waited.
    #[must_use]
    pub fn time_waited(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Ordering::Relaxed))
    }
}

impl<T> Batch<Delivery<T>> {
    /// Takes a batch apart: before the culprit, the culprit alone, and what
    /// comes after it; or else in halves. The parts are in order.
    ///
    /// A culprit that is not in the batch is none.
    #[must_use]
    pub fn take_apart(self, culprit: Option<&Culprit>) -> Vec<Self> {
        let is_culprit =
            |delivery: &Arc<Delivery<T>>| culprit.is_some_and(|it| it.is(&delivery.record));
        let Some(culprit) = self.iter().position(is_culprit) else {
            let middle = self.len() / 2;
            let (left, right) = self.split_at(middle);
            return [left, right].into_iter().flatten().collect();
        };
        let (before, rest) = self.split_at(culprit);
        let (alone, after) = rest.map_or((None, None), |rest| rest.split_at(1));
        [before, alone, after].into_iter().flatten().collect()
    }
}

impl<D> Clone for Batch<D> {
    fn clone(&self) -> Self {
        Self { items: self.items.clone(), waited: Arc::clone(&self.waited) }
    }
}

impl<D> Deref for Batch<D> {
    type Target = [Arc<D>];

    fn deref(&self) -> &Self::Target {
        &self.items
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::{Batch, Delivery};
    use crate::{Epoch, Lease, Record, TopicPartition};

    fn batch(items: &[i32]) -> Option<Batch<i32>> {
        Batch::new(items.iter().copied().map(Arc::new).collect())
    }

    #[track_caller]
    fn check(items: &[i32], mid: usize, left: &[i32], right: &[i32]) {
        let sides = batch(items).unwrap().split_at(mid);
        let of = |side: Option<Batch<i32>>| -> Vec<i32> {
            side.iter().flat_map(|side| side.iter().map(|item| **item)).collect()
        };
        assert_eq!((of(sides.0).as_slice(), of(sides.1).as_slice()), (left, right));
    }

    #[test]
    fn a_split_has_no_empty_side() {
        check(&[1, 2, 3], 1, &[1], &[2, 3]);
        check(&[1, 2, 3], 0, &[], &[1, 2, 3]);
        check(&[1, 2, 3], 9, &[1, 2, 3], &[]);
        assert!(batch(&[]).is_none());
    }

    #[test]
    fn clones_share_the_time_waited() {
        let batch = batch(&[1]).unwrap();
        let clone = batch.clone();
        clone.waited(Duration::from_millis(2));
        batch.waited(Duration::from_millis(3));
        assert_eq!(batch.time_waited(), Duration::from_millis(5));
    }

    /// The offsets of the parts of a batch of `0..count`.
    fn parts(count: i64, culprit: Option<i64>) -> Vec<Vec<i64>> {
        let (_owner, lease) =
            Lease::grant(TopicPartition::new("transfers", 0), Epoch::new(1, "member"));
        let delivery = |offset| {
            let record = Record::new(lease.partition().clone(), offset, "payload");
            Delivery::new(lease.clone(), record)
        };
        let batch = Batch::new((0..count).map(delivery).map(Arc::new).collect()).unwrap();
        let culprit = culprit.map(|offset| delivery(offset).culprit());
        let offsets = |part: Batch<Delivery>| part.iter().map(|it| it.record.offset).collect();
        batch.take_apart(culprit.as_ref()).into_iter().map(offsets).collect()
    }

    #[test]
    fn a_batch_is_taken_apart_around_its_culprit_or_in_halves() {
        assert_eq!(parts(5, Some(2)), [vec![0, 1], vec![2], vec![3, 4]]);
        assert_eq!(parts(3, Some(0)), [vec![0], vec![1, 2]]);
        assert_eq!(parts(3, Some(2)), [vec![0, 1], vec![2]]);
        assert_eq!(parts(3, None), [vec![0], vec![1, 2]]);
        assert_eq!(parts(4, Some(9)), [vec![0, 1], vec![2, 3]], "it is not in the batch");
    }
}
