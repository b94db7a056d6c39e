//! The alternatives with the cheapest sets of classes below them.

use std::collections::BTreeSet;

use super::{Alternative, Cost, Dag, MARGIN, Positions};

/// How often the set of one class may change.
const MAX_UPDATES: usize = 12;

/// What is known of a class while sets are compared.
#[derive(Clone)]
struct Known {
    /// The alternative.
    at: usize,
    /// Its own cost.
    own: Cost,
    /// The cost of the set, the class included.
    cost: Cost,
    /// The classes in the set, the class included, as bits.
    set: Vec<u64>,
}

impl Known {
    /// What lies below an alternative of a class, and the class; nothing when that is not known yet or
    /// holds the class itself.
    fn of(alternative: &Alternative, class: usize, known: &[Option<Known>]) -> Option<Known> {
        let below = alternative.children.iter().map(|&child| known[child].as_ref());
        let mut below = below.collect::<Option<Vec<&Known>>>()?;
        below.sort_by(|a, b| b.cost.total_cmp(&a.cost));
        // The dearest operand's set is taken as it is; of the others only what it lacks is looked at.
        let (mut set, mut cost) = match below.first() {
            Some(first) => (first.set.clone(), first.cost),
            None => (vec![0u64; known.len().div_ceil(64)], 0.0),
        };
        for other in below.iter().skip(1) {
            for (word, (all, more)) in set.iter_mut().zip(&other.set).enumerate() {
                let mut new = more & !*all;
                *all |= more;
                while new != 0 {
                    let class = word * 64 + new.trailing_zeros() as usize;
                    cost += known[class].as_ref().map_or(0.0, |known| known.own);
                    new &= new - 1;
                }
            }
        }
        if set[class / 64] & (1 << (class % 64)) != 0 {
            return None;
        }
        set[class / 64] |= 1 << (class % 64);
        Some(Known { at: 0, own: 0.0, cost, set })
    }
}

impl Dag {
    /// Each class by the alternative with the cheapest set of classes below it. The sets are those that
    /// were known when the class was decided: a choice may turn out to be cyclic, which its user checks.
    pub(super) fn cheapest_sets(&self, trees: &Positions) -> Positions {
        let users = self.users();
        let heights = self.heights(trees);
        let count = self.alternatives.len();
        let mut known: Vec<Option<Known>> = vec![None; count];
        let mut updates = vec![0usize; count];
        let mut queue: BTreeSet<(usize, usize)> =
            (0..count).map(|class| (heights[class], class)).collect();
        while let Some((_, class)) = queue.pop_first() {
            if updates[class] >= MAX_UPDATES {
                continue;
            }
            let mut changed = false;
            for (at, alternative) in self.alternatives[class].iter().enumerate() {
                let Some(below) = Known::of(alternative, class, &known) else { continue };
                let cost = below.cost + alternative.cost;
                let is_better =
                    known[class].as_ref().is_none_or(|old| cost < old.cost * (1.0 - MARGIN));
                if is_better {
                    let own = alternative.cost;
                    known[class] = Some(Known { at, own, cost, ..below });
                    changed = true;
                }
            }
            if changed {
                updates[class] += 1;
                queue.extend(users[class].iter().map(|&(user, _)| (heights[user], user)));
            }
        }
        known.into_iter().map(|known| known.map(|known| known.at)).collect()
    }

    /// The height of the tree below each class.
    fn heights(&self, trees: &Positions) -> Vec<usize> {
        let mut heights = vec![usize::MAX; self.alternatives.len()];
        for class in 0..self.alternatives.len() {
            let mut stack = vec![class];
            while let Some(&class) = stack.last() {
                let children = match trees[class] {
                    Some(at) => self.alternatives[class][at].children.as_slice(),
                    None => &[],
                };
                match children.iter().find(|&&child| heights[child] == usize::MAX) {
                    Some(&child) if heights[class] == usize::MAX => stack.push(child),
                    _ => {
                        heights[class] =
                            children.iter().map(|&child| heights[child] + 1).max().unwrap_or(0);
                        stack.pop();
                    }
                }
            }
        }
        heights
    }
}
