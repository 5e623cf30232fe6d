use std::collections::{BTreeMap, BTreeSet};

use proptest::{collection::vec, prelude::*};

use super::{Abandoned, Frontier, OutOfOrder, Standing, Ticket};
use crate::{Class, Error, Outcome};

fn admit(frontier: &Frontier, offsets: &[i64]) -> Vec<(i64, Ticket)> {
    offsets.iter().map(|&offset| (offset, frontier.admit(offset).unwrap())).collect()
}

fn complete(tickets: &mut Vec<(i64, Ticket)>, offset: i64) {
    let index = tickets.iter().position(|ticket| ticket.0 == offset).unwrap();
    tickets.swap_remove(index).1.complete(Outcome::Applied);
}

#[track_caller]
fn check(delivered: &[i64], finished: &[i64], expected: i64) {
    let frontier = Frontier::starting_at(0);
    let mut tickets = admit(&frontier, delivered);
    finished.iter().for_each(|&offset| complete(&mut tickets, offset));
    assert_eq!(frontier.offset(), expected, "after finishing {finished:?}");
    drop(tickets);
    assert_eq!(frontier.offset(), expected, "an abandoned ticket leaves a hole");
}

#[test]
fn waits_at_a_hole() {
    check(&[0, 1, 2], &[], 0);
    check(&[0, 1, 2], &[1], 0);
    check(&[0, 1, 2], &[0, 2], 1);
    check(&[0, 1, 2], &[2, 1, 0], 3);
}

// C1: complete 9 while 3..=8 are in flight, then revoke: 3 is committed.
#[test]
fn the_highest_finished_offset_is_not_the_frontier() {
    check(&[3, 4, 5, 6, 7, 8, 9], &[9], 3);
}

// C7: a delivered offset fails after two later ones completed.
#[test]
fn a_failure_below_finished_offsets_holds_the_frontier() {
    let frontier = Frontier::starting_at(5);
    let mut tickets = admit(&frontier, &[5, 6, 7]);
    complete(&mut tickets, 6);
    complete(&mut tickets, 7);
    tickets.pop().unwrap().1.abandon(Error::new(Class::Poison, "no such account"));
    let standing = Standing { offset: 5, next: 8, in_flight: 0, holes: 1, complete: 2 };
    assert_eq!(frontier.standing(), standing);
}

// C3: transactions and compaction leave gaps in the log.
#[test]
fn a_gap_between_delivered_offsets_is_no_hole() {
    check(&[0, 5, 9], &[0], 5);
    check(&[0, 5, 9], &[0, 5, 9], 10);
}

#[track_caller]
fn check_end(delivered: &[i64], end: i64, finished: &[i64], expected: i64) {
    let frontier = Frontier::starting_at(0);
    let mut tickets = admit(&frontier, delivered);
    frontier.end_of_partition(end).unwrap();
    finished.iter().for_each(|&offset| complete(&mut tickets, offset));
    assert_eq!(frontier.offset(), expected);
}

#[test]
fn reaches_the_end_of_the_log_when_all_is_complete() {
    check_end(&[], 4, &[], 4);
    check_end(&[0, 1], 5, &[0, 1], 5);
    check_end(&[0, 1], 5, &[0], 1);
    check_end(&[0, 1], 2, &[1, 0], 2);
}

#[test]
fn the_record_at_the_end_is_still_to_come() {
    let frontier = Frontier::starting_at(0);
    frontier.end_of_partition(4).unwrap();
    let ticket = frontier.admit(4).unwrap();
    assert_eq!(frontier.offset(), 4);
    ticket.complete(Outcome::Applied);
    assert_eq!(frontier.offset(), 5);
}

#[test]
fn offsets_that_go_backwards_are_refused() {
    let frontier = Frontier::starting_at(3);
    assert_eq!(frontier.admit(2).unwrap_err(), OutOfOrder { offset: 2, next: 3 });
    let _ticket = frontier.admit(7).unwrap();
    assert_eq!(frontier.admit(7).unwrap_err(), OutOfOrder { offset: 7, next: 8 });
    assert_eq!(frontier.end_of_partition(5).unwrap_err(), OutOfOrder { offset: 5, next: 8 });
    let message = "offset 7 came after offset 7";
    assert_eq!(frontier.admit(7).unwrap_err().to_string(), message);
}

// C9: an acknowledgement of an ended lease arrives later.
#[test]
fn a_completion_after_the_close_is_late_and_changes_nothing() {
    let frontier = Frontier::starting_at(0);
    let mut tickets = admit(&frontier, &[0, 1]);
    complete(&mut tickets, 0);
    assert_eq!(frontier.close(), 1);
    let (_, ticket) = tickets.pop().unwrap();
    assert!(ticket.complete(Outcome::Applied).is_late());
    assert_eq!(frontier.offset(), 1);
    assert_eq!(frontier.standing().in_flight, 0);
}

// C10: the partition comes back while offset 5 still runs.
#[test]
fn frontiers_of_two_leases_of_one_partition_do_not_meet() {
    let old = Frontier::starting_at(5);
    let running = old.admit(5).unwrap();
    let new = Frontier::starting_at(old.close());
    let again = new.admit(5).unwrap();
    assert!(running.complete(Outcome::Applied).is_late());
    assert_eq!(new.offset(), 5, "only its own completion moves it");
    assert!(!again.complete(Outcome::Duplicate).is_late());
    assert_eq!(new.offset(), 6);
}

#[test]
fn the_first_abandoned_ticket_is_the_failure() {
    let frontier = Frontier::starting_at(0);
    let mut tickets = admit(&frontier, &[0, 1]);
    assert!(frontier.failure().is_none());
    let (_, second) = tickets.pop().unwrap();
    drop(second);
    let (_, first) = tickets.pop().unwrap();
    first.abandon(Error::new(Class::Poison, "no such account"));
    let failure = frontier.failure().unwrap();
    assert_eq!(failure.class(), Class::Fatal);
    assert_eq!(failure.downcast_ref(), Some(&Abandoned { offset: 1 }));
}

#[test]
fn a_ticket_abandoned_after_the_close_is_no_failure() {
    let frontier = Frontier::starting_at(0);
    let ticket = frontier.admit(0).unwrap();
    frontier.close();
    drop(ticket);
    assert!(frontier.failure().is_none());
}

#[test]
fn a_hundred_thousand_in_flight_complete_in_reverse() {
    let frontier = Frontier::starting_at(0);
    let tickets: Vec<_> = (0..100_000).map(|offset| frontier.admit(offset).unwrap()).collect();
    for ticket in tickets.into_iter().rev() {
        assert_eq!(frontier.offset(), 0);
        ticket.complete(Outcome::Applied);
    }
    assert_eq!(frontier.offset(), 100_000);
    assert_eq!(frontier.standing().complete, 0, "nothing is held for what is passed");
}

/// The same, with sets, and in no time bound.
#[derive(Default)]
struct Naive {
    delivered: BTreeSet<i64>,
    complete: BTreeSet<i64>,
    next: i64,
}

impl Naive {
    fn offset(&self) -> i64 {
        self.delivered.difference(&self.complete).next().copied().unwrap_or(self.next)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Admit { gap: i64 },
    End { gap: i64 },
    Complete { nth: prop::sample::Index },
    Abandon { nth: prop::sample::Index },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_i64).prop_map(|gap| Step::Admit { gap }),
        1 => (0..3_i64).prop_map(|gap| Step::End { gap }),
        4 => any::<prop::sample::Index>().prop_map(|nth| Step::Complete { nth }),
        1 => any::<prop::sample::Index>().prop_map(|nth| Step::Abandon { nth }),
    ]
}

proptest! {
    // I1, I2: as the naive model, after every step of any schedule.
    #[test]
    fn stands_where_the_naive_model_does(steps in vec(step(), 0..200)) {
        let frontier = Frontier::starting_at(0);
        let mut naive = Naive::default();
        let mut tickets: BTreeMap<i64, Ticket> = BTreeMap::new();
        for step in steps {
            let taken = |tickets: &mut BTreeMap<i64, Ticket>, nth: prop::sample::Index| {
                let offset = *tickets.keys().nth(nth.index(tickets.len().max(1)))?;
                tickets.remove_entry(&offset)
            };
            match step {
                Step::Admit { gap } => {
                    let offset = naive.next + gap;
                    tickets.insert(offset, frontier.admit(offset).unwrap());
                    naive.delivered.insert(offset);
                    naive.next = offset + 1;
                }
                Step::End { gap } => {
                    naive.next += gap;
                    frontier.end_of_partition(naive.next).unwrap();
                }
                Step::Complete { nth } => {
                    if let Some((offset, ticket)) = taken(&mut tickets, nth) {
                        ticket.complete(Outcome::Applied);
                        naive.complete.insert(offset);
                    }
                }
                Step::Abandon { nth } => drop(taken(&mut tickets, nth)),
            }
            let standing = frontier.standing();
            prop_assert_eq!(standing.offset, naive.offset());
            prop_assert_eq!(standing.next, naive.next);
            prop_assert_eq!(standing.in_flight, tickets.len());
            let highest = naive.complete.last().copied().unwrap_or(0);
            let incomplete = naive.delivered.difference(&naive.complete);
            prop_assert_eq!(standing.holes, incomplete.filter(|it| **it < highest).count());
            let above = naive.complete.iter().filter(|it| **it > naive.offset()).count();
            prop_assert_eq!(standing.complete, above);
        }
    }
}
