//! The plainest program that keeps the promise, over tables in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tidegate_oracle::{
    Balance, Committed, Effect, Evidence, Log, Marker, Meaning, Message, MessageId, Parked,
    Partition, Place, Position, RawRecord, ledger,
};

/// What no database here takes.
pub(crate) const LIMIT: i64 = 100;

pub(crate) fn partition(number: i32) -> Partition {
    Partition::new("transfers", number)
}

pub(crate) fn transfer(id: u64, account: &str, revision: i64, amount: i64) -> String {
    format!(r#"{{"id":{id},"account":"{account}","revision":{revision},"amount":{amount}}}"#)
}

/// A record of partition `number`, whose key is `account`.
pub(crate) fn record(number: i32, offset: i64, account: &str, payload: &str) -> RawRecord {
    RawRecord {
        place: partition(number).at(offset),
        key: Some(account.as_bytes().to_vec()),
        payload: Some(payload.as_bytes().to_vec()),
    }
}

pub(crate) fn log(records: impl IntoIterator<Item = RawRecord>) -> Log {
    Log::new(records, ledger::meaning(LIMIT))
}

/// Who works.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) worker: String,
    pub(crate) epoch: i64,
}

/// The tables, and the one statement that they need.
#[derive(Clone, Debug, Default)]
pub(crate) struct Database {
    effects: Vec<Effect>,
    markers: HashMap<MessageId, (Place, Option<Vec<u8>>)>,
    entities: BTreeMap<String, (i64, Option<MessageId>)>,
    parked: BTreeMap<(String, i64), (RawRecord, bool)>,
    buried: BTreeSet<Place>,
}

impl Database {
    /// Does all that a record asks for, in one transaction.
    pub(crate) fn consume(&mut self, record: &RawRecord, owner: &Owner) {
        let Meaning::Message(message) = ledger::meaning(LIMIT)(record) else {
            self.buried.insert(record.place.clone());
            return;
        };
        if self.buried.contains(&record.place) {
            return;
        }
        match self.markers.get(&message.id) {
            Some((_, payload)) if *payload == record.payload => return,
            Some(_) => {
                self.buried.insert(record.place.clone());
                return;
            }
            None => {}
        }
        if self.deliver(record, &message, owner) {
            let marker = (record.place.clone(), record.payload.clone());
            self.markers.insert(message.id, marker);
        } else {
            self.buried.insert(record.place.clone());
        }
    }

    /// Whether it succeeded.
    fn deliver(&mut self, record: &RawRecord, message: &Message, owner: &Owner) -> bool {
        let entity = message.entity.clone();
        let (last, last_id) = self.entities.get(&entity).copied().unwrap_or_default();
        let slot = (entity.clone(), message.revision);
        if message.revision <= last {
            return !(message.revision == last && last_id.is_some());
        }
        if self.parked.contains_key(&slot) {
            return false;
        }
        if message.revision > last + 1 {
            self.entities.entry(entity).or_default();
            self.parked.insert(slot, (record.clone(), false));
            return true;
        }
        if !self.apply(record, message, owner) {
            return false;
        }
        let mut next = (entity, message.revision + 1);
        while let Some((record, _)) = self.parked.get(&next).cloned() {
            let Meaning::Message(message) = ledger::meaning(LIMIT)(&record) else {
                unreachable!("only messages are parked");
            };
            if !self.apply(&record, &message, owner) {
                self.parked.entry(next).and_modify(|(_, withheld)| *withheld = true);
                break;
            }
            self.parked.remove(&next);
            next.1 += 1;
        }
        true
    }

    fn apply(&mut self, record: &RawRecord, message: &Message, owner: &Owner) -> bool {
        if message.amount >= LIMIT {
            return false;
        }
        self.effects.push(Effect {
            id: message.id,
            entity: message.entity.clone(),
            revision: message.revision,
            amount: message.amount,
            place: record.place.clone(),
            worker: owner.worker.clone(),
            epoch: owner.epoch,
            seq: self.effects.len() as i64,
        });
        self.entities.insert(message.entity.clone(), (message.revision, Some(message.id)));
        true
    }

    /// What an oracle would read of it.
    pub(crate) fn evidence(&self, log: Log, committed: Vec<Committed>) -> Evidence {
        let mut sums = BTreeMap::<_, i64>::new();
        for effect in &self.effects {
            *sums.entry(effect.entity.clone()).or_default() += effect.amount;
        }
        let mut evidence = Evidence::default();
        evidence.log = log;
        evidence.committed = Some(committed);
        evidence.effects = Some(self.effects.clone());
        let markers = self.markers.iter();
        evidence.markers =
            Some(markers.map(|(&id, (place, _))| Marker { id, place: place.clone() }).collect());
        let positions = self.entities.iter();
        let position = |(entity, (revision, _)): (&String, &(i64, Option<MessageId>))| Position {
            entity: entity.clone(),
            revision: *revision,
        };
        evidence.positions = Some(positions.map(position).collect());
        let parked = self.parked.iter().map(|((entity, revision), (record, withheld))| Parked {
            entity: entity.clone(),
            revision: *revision,
            place: record.place.clone(),
            withheld: *withheld,
        });
        evidence.parked = Some(parked.collect());
        evidence.buried = Some(self.buried.iter().cloned().collect());
        let balance = |(entity, amount)| Balance { entity, amount };
        evidence.balances = Some(sums.into_iter().map(balance).collect());
        evidence
    }
}

pub(crate) fn committed(number: i32, offset: i64) -> Committed {
    Committed { partition: partition(number), offset: Some(offset), at: 0, era: 0 }
}
