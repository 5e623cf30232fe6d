//! Claims a partition, and keeps what is known about the claim.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tidegate_core::{Condition, Lease};
use tokio::time::{Instant, sleep, timeout};

use super::{
    GuardError,
    claim::{Owner, decide},
};
use crate::{
    Database, DbErr, Txn, error,
    metrics::{ClaimResult, Metrics},
    tables::owners,
};

/// The claim of one lease, shared by the lanes of its stack.
#[derive(Debug)]
pub(super) struct Keeper {
    database: Database,
    group: Arc<str>,
    lease: Lease,
    state: Mutex<State>,
    // One claims, the others wait for it.
    claiming: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug)]
enum State {
    Unclaimed,
    /// The row is ours since that time. It counts once a membership proof was
    /// sent later.
    Claimed {
        owner: Owner,
        at: Instant,
    },
    /// The row was somebody else's at that time. It is claimed again once a
    /// membership proof was sent later.
    Foreign {
        owner: Owner,
        at: Instant,
    },
}

// How long a claim waits for news before it looks at the clock: a lease that
// runs out wakes nobody.
const LOOK: Duration = Duration::from_secs(1);

// Between two tries to claim while the database fails.
const PAUSE: Duration = Duration::from_millis(200);

impl Keeper {
    pub(super) fn new(database: Database, group: Arc<str>, lease: Lease) -> Self {
        let state = Mutex::new(State::Unclaimed);
        Self { database, group, lease, state, claiming: tokio::sync::Mutex::default() }
    }

    pub(super) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Who we are in the row, if the claim counts.
    pub(super) fn counted(&self) -> Option<Owner> {
        match &*self.state() {
            State::Claimed { owner, at } if self.lease.proof() > *at => Some(owner.clone()),
            _ => None,
        }
    }

    /// Whether there is nothing to wait for: the claim counts, or none will.
    pub(super) fn is_settled(&self) -> bool {
        self.counted().is_some() || !self.lease.is_active()
    }

    /// Claims the partition, and waits until the claim counts or the lease is
    /// not active any more.
    ///
    /// Cancel safe: a claim that was written is written again.
    pub(super) async fn settle(self: Arc<Self>) {
        let _claiming = self.claiming.lock().await;
        loop {
            let changed = self.lease.changed();
            if self.is_settled() {
                return;
            }
            let state = self.state().clone();
            match state {
                State::Unclaimed => self.claim(None).await,
                State::Foreign { owner, at } if self.lease.proof() > at => {
                    self.claim(Some(&owner)).await;
                }
                State::Claimed { .. } | State::Foreign { .. } => {
                    let _ = timeout(LOOK, changed).await;
                }
            }
        }
    }

    /// Checks in a transaction that the row is still ours, and keeps it from
    /// being changed until the transaction ends.
    pub(super) async fn check(
        &self,
        txn: &Txn,
        claimed: &Owner,
    ) -> Result<Option<GuardError>, DbErr> {
        let row = owners::check(txn, &self.group, self.lease.partition()).await?;
        if row.as_ref() == Some(claimed) {
            return Ok(None);
        }
        self.metrics().refused();
        let next = row
            .clone()
            .map_or(State::Unclaimed, |owner| State::Foreign { owner, at: Instant::now() });
        // Not if it was claimed again meanwhile.
        let mut state = self.state();
        if matches!(&*state, State::Claimed { owner, .. } if owner == claimed) {
            *state = next;
            self.lease.demand_proof();
        }
        Ok(Some(row.map_or(GuardError::Unclaimed, |owner| GuardError::Taken {
            owner: owner.epoch,
            claimed: claimed.epoch.clone(),
        })))
    }

    async fn claim(&self, newer_than: Option<&Owner>) {
        match self.write(newer_than).await {
            Ok(Ok(owner)) => {
                self.metrics().claimed(ClaimResult::Written);
                *self.state() = State::Claimed { owner, at: Instant::now() };
                self.lease.demand_proof();
            }
            Ok(Err(owner)) => {
                self.metrics().claimed(ClaimResult::Foreign);
                tracing::warn!(
                    partition = %self.lease.partition(),
                    epoch = %self.lease.epoch(),
                    owner = %owner.epoch,
                    "the partition is claimed by another member",
                );
                *self.state() = State::Foreign { owner, at: Instant::now() };
                self.lease.demand_proof();
            }
            Err(error) => {
                self.metrics().claimed(ClaimResult::Failed);
                tracing::warn!(
                    partition = %self.lease.partition(),
                    error = %error,
                    "cannot claim the partition",
                );
                if error::is_unreachable(&error) {
                    self.lease.set_condition(Condition::DatabaseDown);
                }
                sleep(PAUSE).await;
            }
        }
    }

    /// One transaction: reads the row, decides, and writes it.
    async fn write(&self, newer_than: Option<&Owner>) -> Result<Result<Owner, Owner>, DbErr> {
        let (group, partition) = (&*self.group, self.lease.partition());
        let transaction = self.database.begin().await?;
        let txn = transaction.txn();
        loop {
            let row = owners::lock(&txn, group, partition).await?;
            let exists = row.is_some();
            let owner = match decide(row, self.lease.epoch(), newer_than) {
                Ok(owner) => owner,
                Err(other) => return Ok(Err(other)),
            };
            if exists {
                owners::update(&txn, group, partition, &owner).await?;
            } else if !owners::insert(&txn, group, partition, &owner).await? {
                // Somebody else did, just now.
                continue;
            }
            transaction.commit().await?;
            return Ok(Ok(owner));
        }
    }

    fn metrics(&self) -> &Metrics {
        self.database.metrics()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
