//! Holding rules to what they claim: random instances of their left sides, evaluated by the reference
//! interpreter beside their right sides.
//!
//! Where both sides only add and multiply, half of the instances are evaluated in a prime field, where
//! equality is exact; other floats in double precision, or, for rules that claim to keep every bit, in
//! single precision on special values. A rule of which too few instances are found fails, and each guard
//! is taken away in turn, whereupon some instance must go wrong.

mod draw;
mod instance;
mod planted;

use crate::egraph::{Numerics, Rule};

use draw::Random;
use instance::{Arithmetic, Outcome, try_instance};

/// Instances of a rule that must be found, and as many as are evaluated.
const INSTANCES: usize = 16;

/// Left sides that are drawn for them at most.
const DRAWS: usize = 3000;

/// Fewer instances than this leave a rule untested.
const LEAST_INSTANCES: usize = 8;

/// The verdict on one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The rule's name.
    pub rule: &'static str,
    /// Its numerics class.
    pub numerics: Numerics,
    /// Instances that were evaluated, and found equal.
    pub instances: usize,
    /// Those of them that were evaluated in the prime field.
    pub in_field: usize,
    /// What is wrong; empty when the rule is sound as far as it was tried.
    pub faults: Vec<String>,
}

/// The verdicts on a set of rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// One for each rule, in order.
    pub verdicts: Vec<Verdict>,
    /// The number of guards that were taken away.
    pub guards: usize,
    /// Rules that are wrong on purpose, and whether the test found that out.
    pub planted: Vec<(&'static str, bool)>,
}

impl Report {
    /// Whether every rule is sound, every guard needed and every planted rule caught.
    pub fn passed(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.faults.is_empty())
            && self.planted.iter().all(|(_, caught)| *caught)
    }
}

/// Verifies all rules whose name holds `filter`, and that planted wrong ones are caught.
pub fn verify(filter: &str, seed: u64) -> Report {
    let mut report = Report::default();
    for rule in super::all().iter().filter(|rule| rule.name.contains(filter)) {
        report.verdicts.push(verify_rule(rule, seed));
        report.guards += rule.guards.len();
    }
    for rule in planted::rules() {
        let caught = !verify_rule(&rule, seed).faults.is_empty();
        report.planted.push((rule.name, caught));
    }
    report
}

/// Verifies one rule.
pub fn verify_rule(rule: &Rule, seed: u64) -> Verdict {
    let mut verdict = Verdict {
        rule: rule.name,
        numerics: rule.numerics,
        instances: 0,
        in_field: 0,
        faults: Vec::new(),
    };
    let mut random = Random::new(seed ^ hash(rule.name));
    for draw in 0..DRAWS {
        if verdict.instances == INSTANCES {
            break;
        }
        match try_instance(rule, &mut random, draw, None) {
            Outcome::Unfit => {}
            Outcome::Equal(arithmetic) => {
                verdict.instances += 1;
                verdict.in_field += usize::from(arithmetic == Arithmetic::Field);
            }
            Outcome::Different(difference) => {
                verdict.faults.push(difference);
                break;
            }
        }
    }
    if verdict.faults.is_empty() && verdict.instances < LEAST_INSTANCES {
        let found = verdict.instances;
        verdict.faults.push(format!("only {found} instances were found in {DRAWS} draws"));
    }
    for (at, guard) in rule.guards.iter().enumerate() {
        let is_caught = (0..DRAWS).any(|draw| {
            matches!(try_instance(rule, &mut random, draw, Some(at)), Outcome::Different(_))
        });
        if !is_caught {
            verdict.faults.push(format!("nothing goes wrong without the guard `{}`", guard.name));
        }
    }
    verdict
}

/// FNV-1a, so that each rule has its own sequence whatever the others are.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_holds_and_every_guard_is_needed() {
        let report = verify("", 1);
        let faults: Vec<String> = report
            .verdicts
            .iter()
            .filter(|verdict| !verdict.faults.is_empty())
            .map(|verdict| format!("{}: {}", verdict.rule, verdict.faults.join("; ")))
            .collect();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        assert!(report.planted.iter().all(|(_, caught)| *caught), "{:?}", report.planted);
    }
}
