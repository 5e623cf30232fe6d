use tokio::sync::watch;

use super::Place;

/// What a barrier and those who wait at it have in common.
#[derive(Debug)]
pub(super) struct Gate {
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    open: bool,
    // Of the first that came.
    first: Option<Vec<Place>>,
    waiting: usize,
}

/// Counts one that waits, for as long as it does.
struct Waiting<'a>(&'a Gate);

// ===== impl Gate =====

impl Default for Gate {
    fn default() -> Self {
        Self { state: watch::Sender::new(State::default()) }
    }
}

impl Gate {
    /// Waits until the gate is open.
    pub(super) async fn pass(&self, places: &[Place]) {
        let mut state = self.state.subscribe();
        self.state.send_modify(|state| {
            state.first.get_or_insert_with(|| places.to_vec());
            state.waiting += 1;
        });
        let _waiting = Waiting(self);
        let opened = state.wait_for(|state| state.open).await;
        opened.expect("the sender lives as long as the gate");
    }

    /// Waits until somebody waits, and returns what the first one brings.
    pub(super) async fn reached(&self) -> Vec<Place> {
        let mut state = self.state.subscribe();
        let state = state.wait_for(|state| state.first.is_some()).await;
        let state = state.expect("the sender lives as long as the gate");
        state.first.clone().unwrap_or_default()
    }

    pub(super) fn waiting(&self) -> usize {
        self.state.borrow().waiting
    }

    pub(super) fn open(&self) {
        self.state.send_modify(|state| state.open = true);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| state.waiting -= 1);
    }
}
