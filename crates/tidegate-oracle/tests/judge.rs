//! Each way to break the promise is planted once, and has to be found and
//! named.

mod common;

use tidegate_oracle::{
    Bounds, Committed, Effect, Evidence, Findings, Floor, Log, Order, Parked, Place, Rules,
    Verdict,
    ViolationKind::{self, *},
    judge,
};

use self::common::{Database, Owner, committed, log, partition, record, transfer};

/// Consumes a log once, from its start to its end, with one worker, and
/// commits at the end.
fn run(log: &Log) -> Evidence {
    let mut database = Database::default();
    let owner = Owner { worker: "a".to_owned(), epoch: 1 };
    for input in log.inputs() {
        database.consume(&input.record, &owner);
    }
    let ends = log.bounds().iter();
    let committed = ends.map(|(partition, bounds)| Committed {
        partition: partition.clone(),
        offset: Some(bounds.end),
        at: 0,
        era: 0,
    });
    database.evidence(log.clone(), committed.collect())
}

/// Partition 0: a's revisions 1, 3, 2, a duplicate, a conflict, no transfer.
/// Partition 1: b's 1, one that no database takes, its successor.
fn evidence() -> Evidence {
    let of_a = [
        transfer(1, "a", 1, 10),
        transfer(3, "a", 3, 30),
        transfer(2, "a", 2, 20),
        transfer(1, "a", 1, 10),
        transfer(2, "a", 2, 21),
        "no transfer".to_owned(),
    ];
    let of_b = [transfer(4, "b", 1, 40), transfer(5, "b", 2, 500), transfer(6, "b", 3, 60)];
    let of_a = (0..).zip(&of_a).map(|(offset, payload)| record(0, offset, "a", payload));
    let of_b = (0..).zip(&of_b).map(|(offset, payload)| record(1, offset, "b", payload));
    run(&log(of_a.chain(of_b)))
}

#[track_caller]
fn check_rules(rules: Rules, plant: impl FnOnce(&mut Evidence), kinds: &[ViolationKind]) {
    let mut evidence = evidence();
    plant(&mut evidence);
    let findings = judge(&evidence, rules);
    let found: Vec<_> = findings.found.keys().copied().collect();
    assert_eq!(found, kinds, "{findings}");
    let verdict = if kinds.is_empty() { Verdict::Pass } else { Verdict::Fail };
    assert_eq!(findings.verdict, verdict);
}

#[track_caller]
fn check(plant: impl FnOnce(&mut Evidence), kinds: &[ViolationKind]) {
    check_rules(Rules::default(), plant, kinds);
}

fn effects(evidence: &mut Evidence) -> &mut Vec<Effect> {
    evidence.effects.as_mut().expect("the run has read them")
}

fn seen(evidence: &mut Evidence) -> &mut Vec<Committed> {
    evidence.committed.as_mut().expect("the run has read them")
}

/// The effect of a's revision.
fn of_a(evidence: &mut Evidence, revision: i64) -> &mut Effect {
    let mut effects = effects(evidence).iter_mut();
    effects.find(|it| it.entity == "a" && it.revision == revision).expect("it was applied")
}

fn parked(revision: i64, place: Place) -> Parked {
    Parked { entity: "a".to_owned(), revision, place, withheld: false }
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    check(|_| {}, &[]);
    let counts = judge(&evidence(), Rules::default()).counts;
    assert_eq!((counts.records, counts.messages, counts.due), (9, 6, 4));
    assert_eq!((counts.duplicates, counts.conflicts, counts.poison), (1, 1, 2));
    assert_eq!((counts.effects, counts.parked, counts.buried), (4, 1, 3));
    assert_eq!((counts.markers, counts.unread, counts.handovers), (5, 0, 0));
}

#[test]
fn nothing_is_judged_where_something_was_not_read() {
    let judge = |plant: fn(&mut Evidence)| -> Findings {
        let mut evidence = evidence();
        plant(&mut evidence);
        judge(&evidence, Rules::default())
    };
    let findings = judge(|evidence| evidence.markers = None);
    assert_eq!(findings.to_string(), "NOT_RUN (the markers were not read)");
    for plant in [
        (|evidence: &mut Evidence| evidence.log = log([])) as fn(&mut Evidence),
        |evidence| evidence.committed = None,
        |evidence| evidence.effects = None,
        |evidence| evidence.positions = None,
        |evidence| evidence.parked = None,
        |evidence| evidence.buried = None,
    ] {
        assert_eq!(judge(plant).verdict, Verdict::NotRun);
    }
}

#[test]
fn nothing_is_judged_where_records_have_left_the_topic_unread() {
    let bounds = [0, 1]
        .map(|number| (partition(number), Bounds { start: 2, end: 6 - 3 * i64::from(number) }));
    let mut of_rest = evidence();
    let records = of_rest.log.inputs().iter().map(|input| input.record.clone());
    let rest: Vec<_> = records.filter(|record| record.place.offset >= 2).collect();
    of_rest.log = log(rest).with_bounds(bounds.clone());
    let findings = judge(&of_rest, Rules::default());
    let reason = "the records of transfers-0 below 2 are gone, and were not read before";
    assert_eq!((findings.verdict, &*findings.reasons[0]), (Verdict::NotRun, reason));
    assert_eq!(findings.reasons.len(), 2);

    // Read before they left, they count.
    check(|it| it.log = it.log.clone().with_bounds(bounds), &[]);
}

#[test]
fn a_lost_effect_is_missing_and_its_marker_stands_alone() {
    let lose = |evidence: &mut Evidence| effects(evidence).retain(|it| it.revision != 2);
    let kinds = &[MissingEffect, WrongBalance, CommittedPastUnfinished, MarkerWithoutEffect];
    check(lose, kinds);
}

#[test]
fn a_second_effect_is_found() {
    let repeat = |evidence: &mut Evidence| {
        let again = Effect { seq: 99, ..of_a(evidence, 2).clone() };
        effects(evidence).push(again);
    };
    check(repeat, &[SecondEffect, WrongBalance]);
}

#[test]
fn an_effect_is_what_its_message_asks_for() {
    check(
        |it| of_a(it, 2).amount = 1,
        &[MissingEffect, WrongEffect, WrongBalance, CommittedPastUnfinished],
    );
    // Of another record than its message's.
    check(|it| of_a(it, 2).place.offset = 0, &[WrongEffect]);
}

#[test]
fn an_effect_that_nobody_asked_for_is_found() {
    check(
        |evidence| {
            let mut effect = of_a(evidence, 3).clone();
            effect.id.0 = 77;
            effect.revision = 4;
            effect.seq = 99;
            effects(evidence).push(effect);
        },
        &[UnexpectedEffect, WrongBalance, WrongPosition],
    );
}

#[test]
fn the_first_payload_of_a_message_wins() {
    let overwrite = |evidence: &mut Evidence| of_a(evidence, 2).amount = 21;
    check(overwrite, &[MissingEffect, ConflictApplied, WrongBalance, CommittedPastUnfinished]);
}

#[test]
fn a_conflict_that_nobody_hears_of_is_found() {
    let conflict = partition(0).at(4);
    let swallow = |it: &mut Evidence| it.buried.as_mut().unwrap().retain(|it| *it != conflict);
    check(swallow, &[CommittedPastUnfinished, NotBuried]);
}

#[test]
fn effects_out_of_order_are_found() {
    let swap = |evidence: &mut Evidence| {
        of_a(evidence, 2).seq = 70;
        of_a(evidence, 3).seq = 60;
    };
    check(swap, &[OutOfOrder]);
}

#[test]
fn a_revision_after_a_gap_is_out_of_order() {
    let jump = |evidence: &mut Evidence| {
        let mut effect = effects(evidence).iter().find(|it| it.entity == "b").cloned().unwrap();
        (effect.id.0, effect.revision, effect.amount, effect.seq) = (6, 3, 60, 99);
        effect.place.offset = 2;
        effects(evidence).push(effect);
        evidence.parked = Some(Vec::new());
    };
    check(jump, &[OutOfOrder, WrongBalance, WrongPosition]);
}

#[test]
fn without_a_sequencer_order_is_by_key_as_written() {
    let rules = Rules::default().without_sequencer().without_inbox();
    let one = |id, revision| transfer(id, "a", revision, 1);
    let records = [record(0, 0, "a", &one(2, 2)), record(0, 1, "a", &one(1, 1))];
    let mut evidence = run(&log(records));
    // The run's sequencer has turned them round.
    assert_eq!(judge(&evidence, rules).count(OutOfOrder), 1);
    for effect in effects(&mut evidence) {
        effect.seq = -effect.seq;
    }
    assert_eq!(judge(&evidence, rules).verdict, Verdict::Pass);
}

// The control of a lab: what a sequencer would have prevented.
#[test]
fn without_a_sequencer_its_order_may_be_promised_all_the_same() {
    let rules = Rules::default().without_sequencer().ordered(Order::Strict { first: 1 });
    let rules = rules.without_inbox();
    let one = |id, revision| transfer(id, "a", revision, 1);
    let records = [record(0, 0, "a", &one(2, 2)), record(0, 1, "a", &one(1, 1))];
    let mut evidence = run(&log(records));
    (evidence.positions, evidence.parked) = (None, None);
    assert_eq!(judge(&evidence, rules).verdict, Verdict::Pass);
    for effect in effects(&mut evidence) {
        effect.seq = -effect.seq;
    }
    let findings = judge(&evidence, rules);
    assert_eq!(findings.reasons, ["out-of-order: 1"], "{findings}");
}

#[test]
fn a_commit_above_a_record_without_an_outcome_is_found_once_a_partition() {
    let lose = |evidence: &mut Evidence| {
        effects(evidence).clear();
        evidence.markers = Some(Vec::new());
        evidence.positions = Some(Vec::new());
        evidence.balances = None;
    };
    check(lose, &[MissingEffect, CommittedPastUnfinished]);
    let mut evidence = evidence();
    lose(&mut evidence);
    let findings = judge(&evidence, Rules::default());
    assert_eq!(findings.count(CommittedPastUnfinished), 2);
    let mut violations = findings.violations.iter();
    let first = violations.find(|it| it.kind == CommittedPastUnfinished).unwrap();
    assert_eq!(first.place, Some(partition(0).at(0)));
}

#[test]
fn what_lies_above_the_committed_offset_may_be_there_and_need_not() {
    let stop = |evidence: &mut Evidence| {
        seen(evidence)[0].offset = Some(1);
        effects(evidence).retain(|it| it.entity != "a" || it.revision == 1);
        evidence.positions.as_mut().unwrap()[0].revision = 1;
        evidence.markers.as_mut().unwrap().retain(|it| it.id.0 != 2);
        evidence.parked.as_mut().unwrap().push(parked(3, partition(0).at(1)));
        evidence.balances = None;
    };
    check_rules(Rules::default().unfinished(), stop, &[]);
    check(stop, &[MissingEffect, NotConsumed]);
}

#[test]
fn a_commit_that_went_back_is_found_and_may_be_tolerated() {
    let back = |evidence: &mut Evidence| {
        seen(evidence).insert(0, committed(0, 4));
        seen(evidence).insert(1, committed(0, 3));
    };
    check(back, &[CommittedWentBack]);
    check_rules(Rules::default().tolerating_steps_back(), back, &[]);
    let gone = |it: &mut Evidence| {
        seen(it).insert(0, committed(1, 2));
        seen(it).insert(1, Committed { offset: None, ..committed(1, 0) });
    };
    check(gone, &[CommittedWentBack]);
}

#[test]
fn offsets_that_were_set_back_on_purpose_have_not_gone_back() {
    let rewind = |evidence: &mut Evidence| {
        for (index, seen) in seen(evidence).iter_mut().enumerate() {
            seen.era = 1;
            seen.at = index as i64;
        }
        seen(evidence).insert(0, committed(0, 6));
        seen(evidence).insert(1, Committed { era: 1, ..committed(0, 0) });
    };
    check(rewind, &[]);
}

#[test]
fn a_commit_outside_the_log_is_found() {
    check(|it| seen(it)[1].offset = Some(4), &[CommittedOutsideLog, NotConsumed]);
}

#[test]
fn a_group_that_has_not_read_to_the_end_is_found() {
    check(|it| seen(it)[0].offset = Some(5), &[NotConsumed]);
    check(|it| drop(seen(it).remove(0)), &[NotConsumed]);
}

#[test]
fn a_marker_without_an_outcome_is_found() {
    let mark = |evidence: &mut Evidence| {
        let markers = evidence.markers.as_mut().unwrap();
        let mut marker = markers[0].clone();
        marker.id.0 = 5;
        marker.place = partition(1).at(1);
        markers.push(marker);
        evidence.buried.as_mut().unwrap().retain(|it| it.partition.partition == 0);
    };
    check(mark, &[CommittedPastUnfinished, MarkerWithoutEffect, NotBuried]);
}

#[test]
fn an_effect_without_a_marker_is_found_unless_it_was_pruned() {
    let forget = |it: &mut Evidence| it.markers.as_mut().unwrap().retain(|it| it.id.0 != 1);
    check(forget, &[EffectWithoutMarker]);
    let prune = |evidence: &mut Evidence| {
        forget(evidence);
        evidence.floors.push(Floor { partition: partition(0), low: 0, floor: 1 });
    };
    check(prune, &[]);
}

#[test]
fn a_position_that_does_not_fit_the_effects_is_found() {
    check(|it| it.positions.as_mut().unwrap()[0].revision = 2, &[WrongPosition]);
    check(|it| drop(it.positions.as_mut().unwrap().remove(0)), &[WrongPosition]);
}

#[test]
fn an_early_delta_that_is_not_parked_is_found() {
    let lose = |evidence: &mut Evidence| {
        evidence.parked = Some(Vec::new());
        evidence.markers.as_mut().unwrap().retain(|it| it.id.0 != 6);
    };
    check(lose, &[CommittedPastUnfinished, NotParked]);
}

#[test]
fn a_parked_delta_that_could_go_on_is_found() {
    let keep = |it: &mut Evidence| {
        it.parked.as_mut().unwrap().push(parked(3, partition(0).at(1)));
        effects(it).retain(|it| it.entity != "a" || it.revision < 3);
        it.positions.as_mut().unwrap()[0].revision = 2;
        it.balances = None;
    };
    check(keep, &[NeverReleased]);
    // One that was applied and is still there.
    let leave = |it: &mut Evidence| {
        it.parked.as_mut().unwrap().push(parked(3, partition(0).at(1)));
    };
    check(leave, &[NeverReleased]);
}

#[test]
fn a_delta_that_fails_alone_may_be_withheld() {
    let payloads = [transfer(2, "a", 2, 500), transfer(1, "a", 1, 1)];
    let records = (0..).zip(&payloads).map(|(offset, payload)| record(0, offset, "a", payload));
    let evidence = run(&log(records));
    let findings = judge(&evidence, Rules::default());
    assert_eq!((findings.verdict, findings.counts.withheld), (Verdict::Pass, 1), "{findings}");
}

#[test]
fn a_dead_letter_of_a_record_that_could_succeed_is_found() {
    let bury = |place: Place| move |it: &mut Evidence| it.buried.as_mut().unwrap().push(place);
    check(bury(partition(0).at(0)), &[WronglyBuried]);
    check(bury(partition(0).at(99)), &[WronglyBuried]);
}

#[test]
fn parked_deltas_may_become_dead_letters_by_age_where_that_is_the_policy() {
    let age = |it: &mut Evidence| {
        it.buried.as_mut().unwrap().push(partition(1).at(2));
        it.parked = Some(Vec::new());
    };
    check_rules(Rules::default().parked_may_age(), age, &[]);
    check(age, &[WronglyBuried]);
}

#[test]
fn an_effect_of_a_stale_owner_is_counted_and_with_a_guard_a_violation() {
    let zombie = |evidence: &mut Evidence| {
        let second = of_a(evidence, 2);
        (second.worker, second.epoch) = ("b".to_owned(), 2);
    };
    check(zombie, &[]);
    check_rules(Rules::default().guarded(), zombie, &[StaleOwner]);
    let mut evidence = evidence();
    zombie(&mut evidence);
    let counts = judge(&evidence, Rules::default()).counts;
    assert_eq!((counts.handovers, counts.by_stale_owners), (1, 1));
}

#[test]
fn a_restarted_static_member_of_the_same_generation_is_a_later_owner() {
    let restart = |evidence: &mut Evidence| {
        for revision in [2, 3] {
            of_a(evidence, revision).worker = "a2".to_owned();
        }
    };
    check_rules(Rules::default().guarded(), restart, &[]);
    let zombie = |evidence: &mut Evidence| of_a(evidence, 2).worker = "a2".to_owned();
    check_rules(Rules::default().guarded(), zombie, &[StaleOwner]);
}

#[test]
fn a_balance_that_is_not_the_sum_of_its_effects_is_found() {
    check(|it| it.balances.as_mut().unwrap()[0].amount += 1, &[WrongBalance]);
    check(|it| drop(it.balances.as_mut().unwrap().remove(0)), &[WrongBalance]);
}

// The sequencer alone: without markers, what is over is stale.
#[test]
fn a_stack_without_an_inbox_is_judged_by_revisions() {
    let rules = Rules::default().without_inbox();
    let records =
        [record(0, 0, "a", &transfer(1, "a", 1, 1)), record(0, 1, "a", &transfer(1, "a", 1, 1))];
    let mut evidence = run(&log(records));
    evidence.markers = None;
    assert_eq!(judge(&evidence, rules).verdict, Verdict::Pass);
    let again = Effect { seq: 9, ..of_a(&mut evidence, 1).clone() };
    effects(&mut evidence).push(again);
    assert_eq!(judge(&evidence, rules).count(SecondEffect), 1);
}

#[test]
fn the_last_write_may_leave_revisions_out_and_not_go_back() {
    let rules = Rules::default().ordered(Order::LastWriteWins);
    let records =
        [record(0, 0, "a", &transfer(1, "a", 1, 1)), record(0, 1, "a", &transfer(2, "a", 2, 1))];
    let mut evidence = run(&log(records));
    assert_eq!(judge(&evidence, rules).verdict, Verdict::Pass);
    of_a(&mut evidence, 2).seq = -1;
    assert_eq!(judge(&evidence, rules).count(OutOfOrder), 1);
}

#[test]
fn an_early_delta_that_is_applied_where_it_is_to_be_refused_is_found() {
    let rules = Rules::default().ordered(Order::Reject { first: 1 });
    let records =
        [record(0, 0, "a", &transfer(2, "a", 2, 1)), record(0, 1, "a", &transfer(1, "a", 1, 1))];
    let mut evidence = run(&log(records));
    let findings = judge(&evidence, rules);
    assert_eq!(findings.count(UnexpectedEffect), 1, "{findings}");
    effects(&mut evidence).remove(1);
    evidence.markers.as_mut().unwrap().retain(|it| it.id.0 == 1);
    evidence.positions.as_mut().unwrap()[0].revision = 1;
    evidence.buried = Some(vec![partition(0).at(0)]);
    evidence.balances = None;
    assert_eq!(judge(&evidence, rules).verdict, Verdict::Pass);
}

#[test]
fn violations_are_counted_beyond_what_is_shown() {
    let many = 3 * Findings::SHOWN as i64;
    let records = (0..many).map(|n| record(0, n, "a", &transfer(n.unsigned_abs(), "a", n + 1, 1)));
    let mut evidence = run(&log(records));
    evidence.markers = Some(Vec::new());
    let findings = judge(&evidence, Rules::default());
    assert_eq!(findings.count(EffectWithoutMarker), many as u64);
    assert_eq!(findings.violations.len(), Findings::SHOWN);
}

#[test]
fn findings_survive_a_report() {
    let mut evidence = evidence();
    effects(&mut evidence).clear();
    let findings = judge(&evidence, Rules::default());
    let json = serde_json::to_string(&findings).unwrap();
    assert!(json.contains(r#""verdict":"FAIL""#), "{json}");
    assert!(
        json.contains(r#""kind":"missing-effect","topic":"transfers","partition":0,"offset":0"#),
        "{json}"
    );
    assert_eq!(serde_json::from_str::<Findings>(&json).unwrap(), findings);
}
