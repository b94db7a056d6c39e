//! GPU targets.

use std::fmt;
use std::str::FromStr;

/// A PTX target: `sm_80`, `sm_90a`, `sm_100f`.
///
/// PTX ISA 9.0, section 11.1.2 (`.target`): code without a suffix runs on its architecture and all
/// later ones; with `a` only on that very architecture; with `f` on later ones of the same family (the
/// same major number) too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// Major number of the compute capability.
    pub major: u32,
    /// Minor number of the compute capability.
    pub minor: u32,
    /// On which other architectures the code runs.
    pub reach: Reach,
}

/// On which architectures besides its own a target's code runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reach {
    /// All later ones.
    Forward,
    /// Later ones of the same family, suffix `f`.
    Family,
    /// None, suffix `a`.
    Exact,
}

/// The text names no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a target: expected sm_<number>, sm_<number>a or sm_<number>f")]
pub struct UnknownTarget(String);

impl Target {
    /// Whether code for this target runs on a device of the given compute capability.
    pub fn runs_on(self, (major, minor): (u32, u32)) -> bool {
        match self.reach {
            Reach::Forward => (major, minor) >= (self.major, self.minor),
            Reach::Family => major == self.major && minor >= self.minor,
            Reach::Exact => (major, minor) == (self.major, self.minor),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = match self.reach {
            Reach::Forward => "",
            Reach::Family => "f",
            Reach::Exact => "a",
        };
        write!(f, "sm_{}{}{suffix}", self.major, self.minor)
    }
}

impl FromStr for Target {
    type Err = UnknownTarget;

    fn from_str(text: &str) -> Result<Target, UnknownTarget> {
        let unknown = || UnknownTarget(text.to_owned());
        let name = text.strip_prefix("sm_").ok_or_else(unknown)?;
        let (digits, reach) = match name.as_bytes().last() {
            Some(b'a') => (&name[..name.len() - 1], Reach::Exact),
            Some(b'f') => (&name[..name.len() - 1], Reach::Family),
            _ => (name, Reach::Forward),
        };
        if !(2..=4).contains(&digits.len()) || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(unknown());
        }
        let number: u32 = digits.parse().map_err(|_| unknown())?;
        Ok(Target { major: number / 10, minor: number % 10, reach })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_limit_the_reach() {
        let runs_on = |target: &str, capability| {
            let parsed: Target = target.parse().unwrap();
            assert_eq!(parsed.to_string(), target);
            parsed.runs_on(capability)
        };
        assert!(runs_on("sm_80", (8, 0)) && runs_on("sm_80", (9, 0)) && runs_on("sm_80", (12, 1)));
        assert!(!runs_on("sm_80", (7, 5)) && !runs_on("sm_90", (8, 9)));
        assert!(runs_on("sm_90a", (9, 0)) && !runs_on("sm_90a", (10, 0)));
        assert!(runs_on("sm_100f", (10, 3)) && !runs_on("sm_100f", (12, 0)));
        for text in ["", "sm_", "sm_9", "sm_90b", "90", "sm_9é", "compute_90", "sm_99999"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
