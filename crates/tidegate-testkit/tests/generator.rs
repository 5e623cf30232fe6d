//! The truth about a topic agrees with the oracle, which knows nothing of how
//! it was made.

#![cfg(all(feature = "generator", feature = "oracle"))]

use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::any, prop_assert_eq, proptest};
use tidegate_testkit::{
    Ledger, LedgerConfig, RecordKind, Transfer,
    oracle::{Due, Log, Message, Partition, Plan, RawRecord, Rules, ledger},
};

fn log(ledger: &Ledger, limit: i64) -> Log {
    let record = |it: &tidegate_testkit::LedgerRecord| RawRecord {
        place: Partition::new("transfers", it.partition).at(it.offset),
        key: Some(it.key.clone().into_bytes()),
        payload: Some(it.payload.clone()),
    };
    Log::new(ledger.records.iter().map(record), ledger::meaning(limit))
}

/// Compares the truth with what the oracle works out.
fn check(config: &LedgerConfig) {
    let ledger = config.generate();
    let log = log(&ledger, config.limit);
    let plan = Plan::of(&log, Rules::default());
    let mut applied = BTreeMap::<_, BTreeMap<_, _>>::new();
    let mut parked = BTreeMap::<_, BTreeSet<_>>::new();
    let mut buried = 0;
    let mut duplicates = 0;
    for (index, input) in log.inputs().iter().enumerate() {
        let message = input.message();
        match (plan.due(index), message) {
            (Some(Due::Applied), Some(Message { id, entity, revision, amount, .. })) => {
                applied.entry(entity.clone()).or_default().insert(*revision, (id.0, *amount));
            }
            (Some(Due::Parked), Some(message)) => {
                parked.entry(message.entity.clone()).or_default().insert(message.revision);
            }
            (Some(Due::Buried), _) => buried += 1,
            (Some(Due::Duplicate), _) => duplicates += 1,
            (due, _) => panic!("record {index} is {due:?}"),
        }
    }
    for (name, account) in &ledger.accounts {
        let entries = account.entries.iter();
        let entry = |it: &Transfer| (it.revision, (u128::from(it.id), it.amount));
        let applied = applied.remove(name).unwrap_or_default();
        assert_eq!(entries.map(entry).collect::<BTreeMap<_, _>>(), applied, "{name}");
        assert_eq!(account.balance, applied.values().map(|(_, amount)| amount).sum::<i64>());
        let parked = parked.remove(name).unwrap_or_default();
        assert_eq!(account.parked.iter().map(|it| it.revision).collect::<BTreeSet<_>>(), parked);
    }
    assert_eq!((applied.len(), parked.len()), (0, 0), "accounts that are not in the truth");
    assert_eq!((buried, duplicates), (ledger.counts.buried, ledger.counts.duplicates));
}

proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig {
        failure_persistence: None,
        ..proptest::prelude::ProptestConfig::default()
    })]

    #[test]
    fn the_truth_is_what_the_oracle_works_out(
        seed in any::<u64>(),
        sizes in (0_usize..400, 1_usize..20, 1..5_i32),
        faults in (0_usize..40, 0_usize..40, 0_usize..10, 0_usize..10, 0_usize..10, 0_usize..5),
    ) {
        let mut config = LedgerConfig::new(seed, sizes.0);
        (config.accounts, config.partitions) = (sizes.1, sizes.2);
        (config.duplicates, config.swaps, config.late) = (faults.0, faults.1, faults.2);
        (config.conflicts, config.poison, config.refused) = (faults.3, faults.4, faults.5);
        check(&config);
        prop_assert_eq!(config.generate(), config.generate());
    }
}

#[test]
fn a_topic_of_usual_size_holds_some_of_everything() {
    let config = LedgerConfig::new(7, 20_000);
    check(&config);
    let ledger = config.generate();
    let counts = ledger.counts;
    assert_eq!((counts.transfers, counts.duplicates, counts.swaps), (20_000, 1_000, 1_000));
    assert_eq!((counts.late, counts.conflicts, counts.poison, counts.refused), (20, 1, 1, 1));
    assert_eq!(counts.records, 21_002);
    assert!((1..=5).contains(&counts.parked));
    assert_eq!(counts.applied + counts.parked + counts.refused, 20_000);
    assert_eq!(counts.buried, 3);
    // Each kind is somewhere in the records, and offsets count up.
    let mut ends = BTreeMap::<_, i64>::new();
    let mut kinds = BTreeMap::<_, usize>::new();
    for record in &ledger.records {
        let end = ends.entry(record.partition).or_default();
        assert_eq!(record.offset, *end);
        *end += 1;
        *kinds.entry(format!("{:?}", record.kind)).or_default() += 1;
    }
    assert_eq!(ends.len(), 8);
    let expected = [("Conflict", 1), ("Duplicate", 1000), ("Poison", 1), ("Refused", 1)];
    for (kind, count) in expected {
        assert_eq!(kinds[kind], count, "{kind}");
    }
}

#[test]
fn duplicates_are_near_and_far() {
    let ledger = LedgerConfig::new(3, 5_000).generate();
    let mut first = BTreeMap::new();
    let mut distances = Vec::new();
    for record in &ledger.records {
        if record.kind == RecordKind::Duplicate {
            distances.push(record.offset - first[&record.payload]);
        }
        first.entry(record.payload.clone()).or_insert(record.offset);
    }
    assert!(distances.iter().any(|distance| *distance < 5));
    assert!(distances.iter().any(|distance| *distance > 200));
}

// Changed by accident, every experiment with a seed would be another one.
#[test]
fn the_topic_of_a_seed_stays_what_it_is() {
    let ledger = LedgerConfig::new(1, 300).generate();
    let digest = ledger.records.iter().fold(0_u64, |digest, record| {
        let bytes = record.payload.iter().copied().chain(record.partition.to_be_bytes());
        bytes.fold(digest, |digest, byte| {
            digest.wrapping_mul(1_099_511_628_211).wrapping_add(u64::from(byte))
        })
    });
    assert_eq!(digest, 8_915_974_085_356_387_665);
}

#[test]
fn another_seed_makes_another_topic() {
    assert_ne!(LedgerConfig::new(1, 300).generate(), LedgerConfig::new(2, 300).generate());
}
