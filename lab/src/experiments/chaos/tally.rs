use std::{cell::RefCell, collections::BTreeMap};

use crate::case::Case;

/// How often each fault took effect, and how often it did not.
#[derive(Default)]
pub(super) struct Tally {
    faults: RefCell<BTreeMap<&'static str, Counted>>,
}

#[derive(Clone, Copy, Default)]
struct Counted {
    landed: u32,
    missed: u32,
}

impl Tally {
    pub(super) fn landed_one(&self, fault: &'static str) {
        self.faults.borrow_mut().entry(fault).or_default().landed += 1;
    }

    pub(super) fn missed_one(&self, fault: &'static str) {
        self.faults.borrow_mut().entry(fault).or_default().missed += 1;
    }

    pub(super) fn count(&self, fault: &'static str, landed: bool) {
        if landed {
            self.landed_one(fault);
        } else {
            self.missed_one(fault);
        }
    }

    pub(super) fn landed(&self) -> u32 {
        self.faults.borrow().values().map(|it| it.landed).sum()
    }

    /// Puts it in the experiment's counts.
    pub(super) fn tell(&self, case: &Case) {
        let faults = self.faults.borrow();
        for (fault, counted) in faults.iter() {
            case.count(&format!("fault: {fault}"), counted.landed);
        }
        case.count("faults", self.landed());
        case.count("faults that did not land", faults.values().map(|it| it.missed).sum::<u32>());
    }
}
