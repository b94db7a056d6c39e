//! Exchanging alternatives: what the whole costs then, by what is newly needed and what no longer is.

use std::collections::BTreeSet;

use super::{Cost, Dag, MARGIN, Positions, Solution};

/// An acyclic choice that is being improved.
pub(super) struct Exchange<'a> {
    dag: &'a Dag,
    positions: Positions,
    cost: Cost,
    /// How often each class is used by the classes that the roots need, and by the roots.
    uses: Vec<u32>,
    /// Where each needed class stands among them, operands before users.
    order: Vec<Option<usize>>,
    /// Changes since the last accepted choice.
    journal: Vec<Change>,
    /// When each class was seen last, by the number of the visit.
    seen: Vec<u32>,
    visit: u32,
    /// Classes looked at so far.
    pub work: usize,
}

/// A class and what it had before.
enum Change {
    Uses(usize, u32),
    Position(usize, Option<usize>),
}

impl<'a> Exchange<'a> {
    pub fn new(dag: &'a Dag, solution: Solution) -> Exchange<'a> {
        let count = dag.alternatives.len();
        let mut exchange = Exchange {
            dag,
            positions: Vec::new(),
            cost: 0.0,
            uses: vec![0; count],
            order: vec![None; count],
            journal: Vec::new(),
            seen: vec![0; count],
            visit: 0,
            work: 0,
        };
        exchange.commit(solution);
        exchange
    }

    pub fn into_positions(self) -> Positions {
        self.positions
    }

    pub fn is_known(&self, class: usize) -> bool {
        self.positions[class].is_some()
    }

    /// The classes that the roots need.
    pub fn needed(&self) -> BTreeSet<usize> {
        (0..self.uses.len()).filter(|&class| self.uses[class] > 0).collect()
    }

    /// The needed classes with alternatives, lowest number first.
    pub fn open(&self) -> Vec<usize> {
        let is_open =
            |&class: &usize| self.uses[class] > 0 && self.dag.alternatives[class].len() > 1;
        (0..self.uses.len()).filter(is_open).collect()
    }

    /// Takes another alternative of a class when that is acyclic and makes the whole cheaper.
    pub fn try_single(&mut self, class: usize, at: usize) -> bool {
        if self.positions[class] == Some(at) || self.uses[class] == 0 {
            return false;
        }
        let difference = self.flip(class, at);
        let is_cheaper = difference < -self.cost * MARGIN;
        let accepted = is_cheaper && !self.reaches_itself(class) && self.accept();
        if !accepted {
            self.undo(0);
        }
        accepted
    }

    /// Tries all combinations of the alternatives of some classes and keeps the cheapest.
    pub fn search(&mut self, part: &[usize], steps: &mut usize) {
        let mut search = Search { part, best: None, cost: self.cost, steps };
        search.visit(self, 0, self.cost);
        if let Some(best) = search.best {
            self.commit(best);
        }
    }

    /// Takes an alternative; returns by how much the whole becomes dearer.
    fn flip(&mut self, class: usize, at: usize) -> Cost {
        let old = self.positions[class];
        self.journal.push(Change::Position(class, old));
        self.positions[class] = Some(at);
        if self.uses[class] == 0 {
            return 0.0;
        }
        let dag = self.dag;
        let new = &dag.alternatives[class][at];
        let mut difference = new.cost;
        for &child in &new.children {
            difference += self.acquire(child);
        }
        if let Some(old) = old {
            let old = &dag.alternatives[class][old];
            difference -= old.cost;
            for &child in &old.children {
                difference -= self.release(child);
            }
        }
        difference
    }

    /// One more use of a class; returns the cost of what is newly needed.
    fn acquire(&mut self, class: usize) -> Cost {
        let dag = self.dag;
        let mut cost = 0.0;
        let mut stack = vec![class];
        while let Some(class) = stack.pop() {
            self.work += 1;
            self.journal.push(Change::Uses(class, self.uses[class]));
            self.uses[class] += 1;
            if self.uses[class] == 1 {
                match self.positions[class] {
                    Some(at) => {
                        let alternative = &dag.alternatives[class][at];
                        cost += alternative.cost;
                        stack.extend(&alternative.children);
                    }
                    None => cost = Cost::INFINITY,
                }
            }
        }
        cost
    }

    /// One use of a class less; returns the cost of what is no longer needed.
    fn release(&mut self, class: usize) -> Cost {
        let dag = self.dag;
        let mut cost = 0.0;
        let mut stack = vec![class];
        while let Some(class) = stack.pop() {
            self.work += 1;
            self.journal.push(Change::Uses(class, self.uses[class]));
            self.uses[class] -= 1;
            if let (0, Some(at)) = (self.uses[class], self.positions[class]) {
                let alternative = &dag.alternatives[class][at];
                cost += alternative.cost;
                stack.extend(&alternative.children);
            }
        }
        cost
    }

    /// Whether a class is now below itself. Everything that the last accepted choice needed is acyclic and
    /// in order, so what stood before the class cannot lead to it.
    fn reaches_itself(&mut self, class: usize) -> bool {
        let before = |other: usize, exchange: &Exchange<'_>| matches!((exchange.order[other], exchange.order[class]), (Some(a), Some(b)) if a < b);
        self.visit += 1;
        let dag = self.dag;
        let mut stack: Vec<usize> = vec![class];
        let mut is_first = true;
        while let Some(at) = stack.pop() {
            self.work += 1;
            if !is_first && at == class {
                return true;
            }
            is_first = false;
            let Some(position) = self.positions[at] else { return true };
            for &child in &dag.alternatives[at][position].children {
                if self.seen[child] != self.visit && !before(child, self) {
                    self.seen[child] = self.visit;
                    stack.push(child);
                }
            }
        }
        false
    }

    /// Keeps what was changed when it is acyclic and cheaper.
    fn accept(&mut self) -> bool {
        self.work += self.positions.len();
        match self.dag.total(self.positions.clone()) {
            Some(solution) if solution.cost < self.cost * (1.0 - MARGIN) => {
                self.commit(solution);
                true
            }
            _ => false,
        }
    }

    fn commit(&mut self, solution: Solution) {
        self.journal.clear();
        self.cost = solution.cost;
        self.uses.fill(0);
        self.order.fill(None);
        for &root in &self.dag.roots {
            self.uses[root] += 1;
        }
        for (place, &class) in solution.needed.iter().enumerate() {
            self.order[class] = Some(place);
            let at = solution.positions[class].expect("invariant: needed classes are chosen");
            for &child in &self.dag.alternatives[class][at].children {
                self.uses[child] += 1;
            }
        }
        self.positions = solution.positions;
    }

    /// Takes back what was changed since the journal had that length.
    fn undo(&mut self, length: usize) {
        while self.journal.len() > length {
            match self.journal.pop() {
                Some(Change::Uses(class, uses)) => self.uses[class] = uses,
                Some(Change::Position(class, position)) => self.positions[class] = position,
                None => return,
            }
        }
    }
}

/// A search through the alternatives of a part.
struct Search<'s> {
    part: &'s [usize],
    /// The cheapest choice so far, when it is cheaper than the one that the search began with.
    best: Option<Solution>,
    cost: Cost,
    /// Choices that may still be looked at.
    steps: &'s mut usize,
}

impl Search<'_> {
    fn visit(&mut self, exchange: &mut Exchange<'_>, depth: usize, cost: Cost) {
        let Some(&class) = self.part.get(depth) else {
            let is_cheaper = cost < self.cost - self.cost.abs() * MARGIN;
            // The uses are right for acyclic choices only, which this finds out.
            if is_cheaper
                && let Some(solution) = exchange.dag.total(exchange.positions.clone())
                && solution.cost < self.cost * (1.0 - MARGIN)
            {
                (self.cost, self.best) = (solution.cost, Some(solution));
            }
            return;
        };
        for at in 0..exchange.dag.alternatives[class].len() {
            if *self.steps == 0 {
                return;
            }
            *self.steps -= 1;
            let length = exchange.journal.len();
            let difference = match exchange.positions[class] == Some(at) {
                true => 0.0,
                false => exchange.flip(class, at),
            };
            self.visit(exchange, depth + 1, cost + difference);
            exchange.undo(length);
        }
    }
}
