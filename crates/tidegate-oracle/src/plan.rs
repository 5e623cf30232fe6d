use std::collections::{BTreeMap, HashMap};

use crate::{Input, Log, Message, MessageId, Order, Partition, Rules};

/// What becomes of a record in the end, if nothing goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Due {
    /// Its effect is made.
    Applied,
    /// It repeats a message.
    Duplicate,
    /// Its revision is over.
    Stale,
    /// It waits for a predecessor that does not come.
    Parked,
    /// It waited, and no database takes it.
    Withheld,
    /// It is a dead letter.
    Buried,
}

/// The run of the simplest program that keeps the promise: one record after
/// the other, in the order of the log, without a failure.
///
/// It is what every other run is measured by. An entity's records lie in one
/// partition, so it does not matter how partitions interleave.
#[derive(Clone, Debug)]
pub struct Plan {
    due: Vec<Option<Due>>,
}

struct Run<'a> {
    inputs: &'a [Input],
    rules: Rules,
    due: Vec<Option<Due>>,
    // The first record of each message that was marked.
    marked: HashMap<MessageId, usize>,
    entities: HashMap<&'a str, Entity>,
}

struct Entity {
    last: i64,
    // The message that brought it there.
    last_id: Option<MessageId>,
    parked: BTreeMap<i64, usize>,
}

// ===== impl Plan =====

impl Plan {
    /// Runs a log to its end.
    #[must_use]
    pub fn of(log: &Log, rules: Rules) -> Self {
        Self::up_to(log, rules, |_| i64::MAX)
    }

    /// Runs what lies below an offset of each partition.
    #[must_use]
    pub fn up_to(log: &Log, rules: Rules, end: impl Fn(&Partition) -> i64) -> Self {
        let inputs = log.inputs();
        let due = vec![None; inputs.len()];
        let mut run = Run { inputs, rules, due, marked: HashMap::new(), entities: HashMap::new() };
        for (index, input) in inputs.iter().enumerate() {
            let place = &input.record.place;
            if place.offset < end(&place.partition) {
                run.step(index);
            }
        }
        Self { due: run.due }
    }

    /// What becomes of the record at an index of [`Log::inputs`]; `None` if it
    /// lies above the end of the run.
    #[must_use]
    pub fn due(&self, index: usize) -> Option<Due> {
        self.due[index]
    }
}

// ===== impl Run =====

impl<'a> Run<'a> {
    fn step(&mut self, index: usize) {
        let due = self.decide(index);
        self.due[index] = Some(due);
        if due == Due::Applied {
            self.release(index);
        }
    }

    fn decide(&mut self, index: usize) -> Due {
        let inputs = self.inputs;
        let Some(message) = inputs[index].message() else {
            return Due::Buried;
        };
        if self.rules.inbox
            && let Some(&first) = self.marked.get(&message.id)
        {
            let repeats = inputs[index].repeats(&inputs[first]);
            return if repeats { Due::Duplicate } else { Due::Buried };
        }
        let due = self.sequence(message, index);
        // The marker is in the transaction that a failure rolls back.
        if due != Due::Buried {
            self.marked.entry(message.id).or_insert(index);
        }
        due
    }

    fn sequence(&mut self, message: &'a Message, index: usize) -> Due {
        let apply = if message.appliable { Due::Applied } else { Due::Buried };
        let first = match self.rules.order {
            Order::AsWritten => return apply,
            Order::Strict { first } | Order::Reject { first } => first,
            Order::LastWriteWins => i64::MIN + 1,
        };
        let fresh = || Entity { last: first - 1, last_id: None, parked: BTreeMap::new() };
        let entity = self.entities.entry(&message.entity).or_insert_with(fresh);
        let revision = message.revision;
        if revision <= entity.last {
            let conflict = revision == entity.last && entity.last_id != Some(message.id);
            return if conflict && entity.last_id.is_some() { Due::Buried } else { Due::Stale };
        }
        if let Some(&parked) = entity.parked.get(&revision) {
            let repeats = self.inputs[index].repeats(&self.inputs[parked]);
            return if repeats { Due::Duplicate } else { Due::Buried };
        }
        if revision > entity.last + 1 {
            match self.rules.order {
                Order::Strict { .. } => {
                    entity.parked.insert(revision, index);
                    return Due::Parked;
                }
                Order::Reject { .. } => return Due::Buried,
                Order::LastWriteWins | Order::AsWritten => {}
            }
        }
        if message.appliable {
            entity.last = revision;
            entity.last_id = Some(message.id);
        }
        apply
    }

    /// Applies what waited for a record.
    fn release(&mut self, index: usize) {
        let Some(message) = self.inputs[index].message() else { return };
        let Some(entity) = self.entities.get_mut(message.entity.as_str()) else { return };
        while let Some(&next) = entity.parked.get(&(entity.last + 1)) {
            let Some(message) = self.inputs[next].message() else { return };
            if !message.appliable {
                self.due[next] = Some(Due::Withheld);
                return;
            }
            entity.parked.remove(&message.revision);
            entity.last = message.revision;
            entity.last_id = Some(message.id);
            self.due[next] = Some(Due::Applied);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Due, Due::*, Plan};
    use crate::{Log, Order, Partition, RawRecord, Rules, ledger};

    fn log(payloads: &[&str]) -> Log {
        let partition = Partition::new("t", 0);
        let record = |(offset, payload): (i64, &&str)| RawRecord {
            place: partition.at(offset),
            key: None,
            payload: Some(payload.as_bytes().to_vec()),
        };
        Log::new((0..).zip(payloads).map(record), ledger::meaning(100))
    }

    /// `id account revision amount`, or what is no transfer.
    fn payload(text: &str) -> String {
        match text.split(' ').collect::<Vec<_>>()[..] {
            [id, account, revision, amount] => format!(
                r#"{{"id":{id},"account":"{account}","revision":{revision},"amount":{amount}}}"#
            ),
            _ => text.to_owned(),
        }
    }

    #[track_caller]
    fn check(rules: Rules, cases: &[(&str, Due)]) {
        let payloads: Vec<_> = cases.iter().map(|(text, _)| payload(text)).collect();
        let log = log(&payloads.iter().map(String::as_str).collect::<Vec<_>>());
        let plan = Plan::of(&log, rules);
        for (index, (text, due)) in cases.iter().enumerate() {
            assert_eq!(plan.due(index), Some(*due), "record {index}, `{text}`");
        }
    }

    #[test]
    fn early_deltas_wait_and_are_released() {
        check(
            Rules::default(),
            &[
                ("3 a 3 1", Applied),
                ("2 a 2 1", Applied),
                ("1 a 1 1", Applied),
                ("9 b 2 1", Parked),
                ("3 a 3 1", Duplicate),
            ],
        );
    }

    #[test]
    fn a_message_is_applied_once_with_its_first_payload() {
        check(
            Rules::default(),
            &[("1 a 1 1", Applied), ("1 a 1 1", Duplicate), ("1 a 1 2", Buried)],
        );
        let rules = Rules::default().without_sequencer();
        check(rules, &[("1 a 7 1", Applied), ("1 a 7 1", Duplicate), ("2 a 7 2", Applied)]);
    }

    #[test]
    fn what_follows_a_buried_delta_is_parked() {
        check(
            Rules::default(),
            &[
                ("1 a 1 1", Applied),
                ("2 a 2 100", Buried),
                ("3 a 3 1", Parked),
                ("2 a 2 100", Buried),
                ("no transfer", Buried),
            ],
        );
    }

    #[test]
    fn a_parked_delta_that_no_database_takes_is_withheld() {
        check(
            Rules::default(),
            &[("3 a 3 1", Parked), ("2 a 2 100", Withheld), ("1 a 1 1", Applied)],
        );
    }

    #[test]
    fn an_equal_revision_of_another_message_is_a_conflict() {
        check(
            Rules::default(),
            &[
                ("1 a 1 1", Applied),
                ("2 a 1 1", Buried),
                ("3 a 3 1", Parked),
                ("4 a 3 1", Buried),
                ("5 a 0 1", Stale),
            ],
        );
    }

    #[test]
    fn without_an_inbox_the_sequencer_alone_drops_what_is_over() {
        let rules = Rules::default().without_inbox();
        check(
            rules,
            &[
                ("1 a 1 1", Applied),
                ("1 a 1 1", Stale),
                ("3 a 3 1", Parked),
                ("3 a 3 1", Duplicate),
                ("2 b 4 1", Parked),
            ],
        );
    }

    #[test]
    fn the_last_write_wins_where_that_is_the_order() {
        let rules = Rules::default().ordered(Order::LastWriteWins);
        check(rules, &[("1 a 5 1", Applied), ("2 a 9 1", Applied), ("3 a 7 1", Stale)]);
    }

    #[test]
    fn early_deltas_are_refused_where_that_is_the_policy() {
        let rules = Rules::default().ordered(Order::Reject { first: 5 });
        check(rules, &[("1 a 6 1", Buried), ("2 a 5 1", Applied), ("3 a 6 1", Applied)]);
    }

    #[test]
    fn a_run_ends_where_it_is_told() {
        let texts = ["2 a 2 1", "1 a 1 1"].map(payload);
        let log = log(&texts.each_ref().map(String::as_str));
        let plan = Plan::up_to(&log, Rules::default(), |_| 1);
        assert_eq!((plan.due(0), plan.due(1)), (Some(Parked), None));
    }
}
