//! The rules of the e-graph, one a line in each family's table.
//!
//! A rule says that whatever its left side matches equals its right side. *Guards* are what makes it
//! true; what makes it worth trying (`worth`) is said apart, so that [`verify`] can hold every rule to
//! what it claims with any operands, and take each guard away to see that it is needed.

mod contraction;
mod movement;
mod pointwise;
mod pool;
mod recognise;
mod reduce;
mod scan;
mod spatial;
pub mod verify;

use std::sync::LazyLock;

use crate::egraph::{Pattern, Premise, Right, Rule, Site};

/// Declares rules of a group: name, numerics class, left and right side, guards, worth, documentation.
macro_rules! rules {
    ($group:ident: $(
        $name:literal $numerics:ident $left:literal => $right:expr,
        if [$($guard:ident),*] when [$($worth:ident),*] $doc:literal;
    )*) => {
        vec![$($crate::egraph::Rule {
            name: $name,
            numerics: $crate::egraph::Numerics::$numerics,
            group: $crate::egraph::Group::$group,
            left: $crate::egraph::Pattern::parse($left),
            guards: &[$($guard),*],
            worth: &[$($worth),*],
            doc: $doc,
            right: $right,
        }),*]
    };
}

/// Declares premises: a constant, its name, and when it holds.
macro_rules! premises {
    ($($constant:ident $name:literal |$site:ident| $holds:expr;)*) => {
        $(const $constant: $crate::egraph::Premise =
            $crate::egraph::Premise { name: $name, holds: |$site| $holds };)*
    };
}

use {premises, rules};

/// A right side in text.
fn text(right: &'static str) -> Right {
    Right::Text(Pattern::parse(right))
}

/// A right side that a function builds.
fn build(right: fn(&mut Site<'_>) -> Option<egg::Id>) -> Right {
    Right::Build(right)
}

/// All rules, in the order in which they are tried.
pub fn all() -> &'static [Rule] {
    static ALL: LazyLock<Vec<Rule>> = LazyLock::new(|| {
        [
            pointwise::rules(),
            recognise::rules(),
            reduce::rules(),
            scan::rules(),
            contraction::rules(),
            pool::rules(),
            spatial::rules(),
            movement::rules(),
        ]
        .concat()
    });
    &ALL
}

const F_IS_PREPARED: Premise =
    Premise { name: "f is prepared", holds: |site| site.data(site.value("f")).prepared };
const B_IS_PREPARED: Premise =
    Premise { name: "b is prepared", holds: |site| site.data(site.value("b")).prepared };
const C_IS_PREPARED: Premise =
    Premise { name: "c is prepared", holds: |site| site.data(site.value("c")).prepared };

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_documented() {
        let names: BTreeSet<&str> = all().iter().map(|rule| rule.name).collect();
        assert_eq!(names.len(), all().len());
        for rule in all() {
            let plain = |c: char| c.is_ascii_lowercase() || c == '-' || c.is_ascii_digit();
            assert!(rule.name.chars().all(plain), "{}", rule.name);
            assert!(rule.doc.ends_with('.'), "{}", rule.name);
        }
    }
}
