use std::{
    fmt, mem,
    pin::Pin,
    sync::{Arc, PoisonError},
    task::{Context, Poll, Wake, Waker},
};

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering};

/// So many responses share a waker.
const GROUP: usize = 32;

/// Responses that a source waits for, each of them until it is done.
///
/// They are in groups, in the order in which they came, and a group has one
/// waker: when it is woken, all of the group are polled. The answers of a batch
/// come at once and stand beside each other, so that a wake-up serves a group
/// of them, where one for each would cost more than all the polling.
///
/// The memory of a response that is done serves the next one. So it holds what the
/// most of them took that ran at a time.
///
/// ```
/// use std::future::{poll_fn, ready};
///
/// use tidegate_core::Responses;
///
/// # tokio_test::block_on(async {
/// let mut responses = Responses::default();
/// responses.push(ready(Ok::<(), &str>(())))?;
/// assert_eq!(responses.push(ready(Err("no such account"))), Err("no such account"));
/// poll_fn(|cx| responses.poll_all(cx)).await;
/// # Ok::<(), &str>(())
/// # }).unwrap();
/// ```
pub struct Responses<F> {
    groups: Vec<Group<F>>,
    // The group that new responses come into, and those that are empty.
    open: usize,
    empty: Vec<usize>,
    // Of responses that are done.
    spare: Vec<Place<F>>,
    len: usize,
    woken: Arc<Woken>,
    // A buffer, left empty.
    due: Vec<usize>,
}

/// Where a response is while it runs. It is boxed, so that it stays where it is.
type Place<F> = Pin<Box<Option<F>>>;

/// Responses that share a waker.
struct Group<F> {
    running: Vec<Place<F>>,
    // How many have come since it was empty. It is not filled up again before:
    // those that are still there would be polled with each of the new ones.
    taken: usize,
    signal: Arc<Signal>,
    waker: Waker,
}

/// What the waker of a group does.
struct Signal {
    group: usize,
    // Whether the group is among those that were woken.
    raised: AtomicBool,
    woken: Arc<Woken>,
}

/// Which groups were woken, and who is to be told.
///
/// No wake-up is lost. A group's waker raises its signal after the change that it
/// announces, and the signal is lowered before the group is polled: so either
/// the polling sees the change, or the group is woken again. And the task leaves
/// its waker before it looks at what was woken.
#[derive(Default)]
struct Woken {
    list: Mutex<List>,
    // Whether there are any; changed under the lock, and read without it.
    any: AtomicBool,
}

#[derive(Default)]
struct List {
    groups: Vec<usize>,
    task: Option<Waker>,
}

// ===== impl Responses =====

impl<F> Responses<F> {
    /// Whether all are done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Has the task of `cx` woken when there is something to poll: to be called
    /// once each time that the task is polled, before
    /// [`poll_woken`](Self::poll_woken).
    pub fn register(&mut self, cx: &Context<'_>) {
        let mut list = self.woken.lock();
        let stale = match &list.task {
            Some(task) if task.will_wake(cx.waker()) => None,
            _ => list.task.replace(cx.waker().clone()),
        };
        drop(list);
        // After the lock: what a waker does when it is dropped is foreign.
        drop(stale);
    }
}

impl<F, E> Responses<F>
where
    F: Future<Output = Result<(), E>>,
{
    /// Adds a response, which is polled once.
    ///
    /// # Errors
    ///
    /// Its own, if it is done already, and failed.
    pub fn push(&mut self, response: F) -> Result<(), E> {
        let mut place = self.spare.pop().unwrap_or_else(|| Box::pin(None));
        place.set(Some(response));
        let group = self.open_group();
        match poll(&mut place, &group.waker) {
            Poll::Ready(result) => {
                self.spare.push(place);
                result
            }
            Poll::Pending => {
                group.running.push(place);
                group.taken += 1;
                self.len += 1;
                Ok(())
            }
        }
    }

    /// Polls those that were woken.
    ///
    /// # Errors
    ///
    /// That of the first one that failed. All of them were polled.
    pub fn poll_woken(&mut self) -> Result<(), E> {
        let mut result = Ok(());
        if !self.woken.any.load(Ordering::Relaxed) {
            return result;
        }
        let mut due = mem::take(&mut self.due);
        self.woken.take(&mut due);
        for index in due.drain(..) {
            let polled = self.poll_group(index);
            result = result.and(polled);
        }
        self.due = due;
        result
    }

    /// Polls those that were woken, until all are done, however they end.
    pub fn poll_all(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.register(cx);
        drop(self.poll_woken());
        if self.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn poll_group(&mut self, index: usize) -> Result<(), E> {
        let Group { running, taken, signal, waker } = &mut self.groups[index];
        signal.lower();
        let mut result = Ok(());
        let is_done = |place: &mut Place<F>| match poll(place, waker) {
            Poll::Ready(Err(error)) => {
                if result.is_ok() {
                    result = Err(error);
                }
                true
            }
            Poll::Ready(Ok(())) => true,
            Poll::Pending => false,
        };
        let before = self.spare.len();
        self.spare.extend(running.extract_if(.., is_done));
        self.len -= self.spare.len() - before;
        if running.is_empty() && *taken > 0 {
            *taken = 0;
            if index != self.open {
                self.empty.push(index);
            }
        }
        result
    }

    fn open_group(&mut self) -> &mut Group<F> {
        if self.groups.get(self.open).is_none_or(|group| group.taken == GROUP) {
            self.open = self.empty.pop().unwrap_or_else(|| {
                self.groups.push(Group::new(self.groups.len(), &self.woken));
                self.groups.len() - 1
            });
        }
        &mut self.groups[self.open]
    }
}

impl<F> Default for Responses<F> {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            open: 0,
            empty: Vec::new(),
            spare: Vec::new(),
            len: 0,
            woken: Arc::default(),
            due: Vec::new(),
        }
    }
}

impl<F> fmt::Debug for Responses<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responses").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Polls a response, and empties its place when it is done.
fn poll<F: Future>(place: &mut Place<F>, waker: &Waker) -> Poll<F::Output> {
    let response = place.as_mut().as_pin_mut().expect("a place in a group is taken");
    let polled = response.poll(&mut Context::from_waker(waker));
    if polled.is_ready() {
        place.set(None);
    }
    polled
}

// ===== impl Group =====

impl<F> Group<F> {
    fn new(index: usize, woken: &Arc<Woken>) -> Self {
        let raised = AtomicBool::new(false);
        let signal = Arc::new(Signal { group: index, raised, woken: Arc::clone(woken) });
        let waker = Waker::from(Arc::clone(&signal));
        Self { running: Vec::with_capacity(GROUP), taken: 0, signal, waker }
    }
}

// ===== impl Signal =====

impl Signal {
    fn lower(&self) {
        // Of a read and a write in one: it sees what was done before each raise.
        self.raised.swap(false, Ordering::AcqRel);
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.raised.swap(true, Ordering::AcqRel) {
            self.woken.add(self.group);
        }
    }
}

// ===== impl Woken =====

impl Woken {
    fn add(&self, group: usize) {
        let mut list = self.lock();
        list.groups.push(group);
        self.any.store(true, Ordering::Relaxed);
        let task = list.task.take();
        drop(list);
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Exchanges what was woken for an empty list.
    fn take(&self, due: &mut Vec<usize>) {
        let mut list = self.lock();
        mem::swap(&mut list.groups, due);
        self.any.store(false, Ordering::Relaxed);
    }

    // What runs under the lock does not panic half way.
    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(test)]
mod tests;
