use std::collections::BTreeMap;

use super::{
    Account, Ledger, LedgerConfig, LedgerCounts, LedgerRecord, RecordKind, Transfer, chance::Chance,
};

// Between the places of two transfers of a partition there is room for so many
// other records, and for chance.
const STEP: u64 = 1 << 20;
// How many tries a choice has, before there is taken to be no room.
const TRIES: usize = 64;

struct Writer<'a> {
    config: &'a LedgerConfig,
    chance: Chance,
    // In the order in which they were made; an id is an index and 1.
    transfers: Vec<Transfer>,
    // The transfers of each account, by revision.
    histories: Vec<Vec<usize>>,
    // Where each transfer stands in its partition.
    places: Vec<u64>,
    // Which transfers must stay where they are.
    fixed: Vec<bool>,
    // Beyond the last place of each partition.
    ends: Vec<u64>,
    written: Vec<Written>,
    counts: LedgerCounts,
}

struct Written {
    partition: usize,
    place: u64,
    key: String,
    payload: Vec<u8>,
    kind: RecordKind,
}

pub(super) fn write(config: &LedgerConfig) -> Ledger {
    assert!(config.accounts > 0, "transfers need an account");
    assert!(config.partitions > 0, "a topic has a partition");
    assert!(config.limit > 1000, "most transfers must be possible");
    let mut writer = Writer {
        config,
        chance: Chance::new(config.seed),
        transfers: Vec::new(),
        histories: vec![Vec::new(); config.accounts],
        places: Vec::new(),
        fixed: vec![false; config.transfers],
        ends: vec![0; usize::try_from(config.partitions).expect("it is positive")],
        written: Vec::new(),
        counts: LedgerCounts { transfers: config.transfers, ..LedgerCounts::default() },
    };
    writer.transfers();
    let refused = writer.refuse();
    writer.swap();
    writer.delay();
    writer.copy(&refused);
    writer.contradict();
    writer.spoil();
    writer.finish(&refused)
}

impl Writer<'_> {
    fn transfers(&mut self) {
        for index in 0..self.config.transfers {
            let account = self.chance.below(self.config.accounts);
            let amount = self.amount();
            let end = self.ends.len();
            let end = &mut self.ends[account % end];
            *end += STEP;
            self.places.push(*end);
            let history = &mut self.histories[account];
            history.push(index);
            self.transfers.push(Transfer {
                id: index as u64 + 1,
                account: format!("account-{account:04}"),
                revision: history.len() as i64,
                amount,
            });
        }
    }

    /// From -500 to 1000.
    fn amount(&mut self) -> i64 {
        self.chance.below(1501) as i64 - 500
    }

    /// Chooses transfers that no database takes: each the first of its account
    /// to fail, and never early.
    fn refuse(&mut self) -> Vec<bool> {
        let mut refused = vec![false; self.transfers.len()];
        for _ in 0..self.config.refused {
            let found = self.choose(|writer, index| {
                let history = writer.history(index);
                let behind = history.len() as i64 - writer.transfers[index].revision;
                (1..=5).contains(&behind) && !history.iter().any(|&it| refused[it])
            });
            let Some(index) = found else { break };
            refused[index] = true;
            self.transfers[index].amount = self.config.limit;
            // What waits for it must wait, and what comes before it must not.
            for index in self.history(index).to_vec() {
                self.fixed[index] = true;
            }
            self.counts.refused += 1;
        }
        refused
    }

    fn swap(&mut self) {
        for _ in 0..self.config.swaps {
            let free = |writer: &Self, index: usize| {
                let before = writer.before(index);
                !writer.fixed[index] && before.is_some_and(|before| !writer.fixed[before])
            };
            let Some(index) = self.choose(free) else { break };
            let before = self.before(index).expect("it was chosen for having one");
            self.places.swap(index, before);
            self.fixed[index] = true;
            self.fixed[before] = true;
            self.counts.swaps += 1;
        }
    }

    /// Moves transfers far behind their successors.
    fn delay(&mut self) {
        for _ in 0..self.config.late {
            let distance = STEP * (20 + self.chance.below(180)) as u64;
            let overtaken = |writer: &Self, index: usize| {
                let revision = usize::try_from(writer.transfers[index].revision);
                let after = writer.history(index).get(revision.expect("it is positive"));
                !writer.fixed[index]
                    && after.is_some_and(|&it| writer.places[it] < writer.places[index] + distance)
            };
            let Some(index) = self.choose(overtaken) else { break };
            self.places[index] += distance + 1;
            self.fixed[index] = true;
            self.counts.late += 1;
        }
    }

    fn copy(&mut self, refused: &[bool]) {
        for copy in 0..self.config.duplicates {
            let Some(index) = self.choose(|_, index| !refused[index]) else { break };
            let place = self.behind(index, copy % 2 == 0);
            let payload = payload(&self.transfers[index]);
            self.put(index, place, payload, RecordKind::Duplicate);
            self.counts.duplicates += 1;
        }
    }

    /// Says something else about transfers that have nothing else to them.
    fn contradict(&mut self) {
        for conflict in 0..self.config.conflicts {
            let Some(index) = self.choose(|writer, index| !writer.fixed[index]) else { break };
            let place = self.behind(index, conflict % 2 == 0);
            let transfer = &self.transfers[index];
            let other = Transfer { amount: transfer.amount - 1, ..transfer.clone() };
            self.put(index, place, payload(&other), RecordKind::Conflict);
            self.fixed[index] = true;
            self.counts.conflicts += 1;
        }
    }

    fn spoil(&mut self) {
        for _ in 0..self.config.poison {
            let partition = self.chance.below(self.ends.len());
            let place = self.within(0, self.ends[partition] + STEP);
            self.written.push(Written {
                partition,
                place,
                key: "poison".to_owned(),
                payload: b"not a transfer".to_vec(),
                kind: RecordKind::Poison,
            });
            self.counts.poison += 1;
        }
    }

    fn finish(mut self, refused: &[bool]) -> Ledger {
        for (index, refused) in refused.iter().enumerate() {
            let kind = if *refused { RecordKind::Refused } else { RecordKind::Transfer };
            let payload = payload(&self.transfers[index]);
            self.put(index, self.places[index], payload, kind);
        }
        // What has one place stands there in the order in which it was made.
        self.written.sort_by_key(|written| written.place);
        let mut offsets = vec![0; self.ends.len()];
        let record = |Written { partition, key, payload, kind, .. }| {
            let offset = offsets[partition];
            offsets[partition] += 1;
            let partition = i32::try_from(partition).expect("it was one");
            LedgerRecord { partition, offset, key, payload, kind }
        };
        let records: Vec<_> = self.written.into_iter().map(record).collect();
        let accounts: BTreeMap<_, _> = self
            .histories
            .iter()
            .enumerate()
            .map(|(number, history)| {
                let account = outcome(history, &self.transfers, refused);
                (format!("account-{number:04}"), account)
            })
            .collect();
        let mut counts = self.counts;
        counts.records = records.len();
        counts.applied = accounts.values().map(|account| account.entries.len()).sum();
        counts.parked = accounts.values().map(|account| account.parked.len()).sum();
        counts.buried = counts.conflicts + counts.poison + counts.refused;
        Ledger { records, accounts, counts }
    }

    fn put(&mut self, index: usize, place: u64, payload: Vec<u8>, kind: RecordKind) {
        let (key, partition) = (self.transfers[index].account.clone(), self.partition(index));
        self.written.push(Written { partition, place, key, payload, kind });
    }

    /// Finds a transfer that fits, if there is one to be found.
    fn choose(&mut self, fits: impl Fn(&Self, usize) -> bool) -> Option<usize> {
        if self.transfers.is_empty() {
            return None;
        }
        for _ in 0..TRIES {
            let index = self.chance.below(self.transfers.len());
            if fits(self, index) {
                return Some(index);
            }
        }
        None
    }

    /// A place behind a transfer, near it or anywhere.
    fn behind(&mut self, index: usize, near: bool) -> u64 {
        let from = self.places[index];
        let end = (self.ends[self.partition(index)] + STEP).max(from + STEP);
        self.within(from, if near { end.min(from + 4 * STEP) } else { end })
    }

    /// A place above `from` that no transfer has.
    fn within(&mut self, from: u64, end: u64) -> u64 {
        let steps = usize::try_from((end - from) / STEP).unwrap_or(usize::MAX);
        let step = self.chance.below(steps.max(1)) as u64 * STEP;
        from + step + 2 + self.chance.below(1 << 16) as u64
    }

    fn account(&self, index: usize) -> usize {
        let name = &self.transfers[index].account;
        let number = name.trim_start_matches("account-");
        number.parse().expect("it was made of a number")
    }

    fn partition(&self, index: usize) -> usize {
        self.account(index) % self.ends.len()
    }

    fn history(&self, index: usize) -> &[usize] {
        &self.histories[self.account(index)]
    }

    fn before(&self, index: usize) -> Option<usize> {
        let revision = usize::try_from(self.transfers[index].revision).ok()?;
        revision.checked_sub(2).map(|before| self.history(index)[before])
    }
}

fn outcome(history: &[usize], transfers: &[Transfer], refused: &[bool]) -> Account {
    let stop = history.iter().position(|&index| refused[index]);
    let (applied, rest) = history.split_at(stop.unwrap_or(history.len()));
    let entries: Vec<_> = applied.iter().map(|&index| transfers[index].clone()).collect();
    let parked = rest.iter().skip(1).map(|&index| transfers[index].clone());
    Account {
        balance: entries.iter().map(|entry| entry.amount).sum(),
        parked: parked.collect(),
        entries,
    }
}

fn payload(transfer: &Transfer) -> Vec<u8> {
    serde_json::to_vec(transfer).expect("a transfer is JSON")
}
