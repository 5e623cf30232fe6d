use tokio::sync::watch;

/// What a barrier and those who wait at it have in common.
#[derive(Debug)]
pub(crate) struct Gate<T> {
    state: watch::Sender<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    open: bool,
    // What the first that came brought with it.
    first: Option<T>,
    waiting: usize,
}

/// Counts one that waits, for as long as it does.
struct Waiting<'a, T>(&'a Gate<T>);

// ===== impl Gate =====

impl<T> Default for Gate<T> {
    fn default() -> Self {
        Self { state: watch::Sender::new(State { open: false, first: None, waiting: 0 }) }
    }
}

impl<T> Gate<T> {
    /// Says that something came, which does not wait.
    pub(crate) fn announce(&self, what: T) {
        self.state.send_modify(|state| {
            state.first.get_or_insert(what);
        });
    }

    /// Waits until the gate is open.
    pub(crate) async fn pass(&self, what: T) {
        let mut state = self.state.subscribe();
        self.announce(what);
        self.state.send_modify(|state| state.waiting += 1);
        let _waiting = Waiting(self);
        let opened = state.wait_for(|state| state.open).await;
        opened.expect("the sender lives as long as the gate");
    }

    /// Waits until something came, and returns what the first one brought.
    pub(crate) async fn reached(&self) -> T
    where
        T: Clone,
    {
        let mut state = self.state.subscribe();
        let state = state.wait_for(|state| state.first.is_some()).await;
        let first = state.expect("the sender lives as long as the gate").first.clone();
        first.expect("it was waited for")
    }

    /// How many wait now.
    pub(crate) fn waiting(&self) -> usize {
        self.state.borrow().waiting
    }

    /// Lets go who waits, and whoever comes.
    pub(crate) fn open(&self) {
        self.state.send_modify(|state| state.open = true);
    }
}

impl<T> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| state.waiting -= 1);
    }
}
