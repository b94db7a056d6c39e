//! What PTX is made for.

use std::fmt;
use std::str::FromStr;

use crate::CodegenError;

/// A GPU architecture that PTX is emitted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// Ampere and everything newer: the portable floor.
    Sm80,
    /// Ada.
    Sm89,
    /// Hopper with its architecture-specific instructions; runs on Hopper only.
    Sm90a,
    /// Blackwell with its architecture-specific instructions; runs on sm_100 only.
    Sm100a,
}

impl Target {
    /// All targets, oldest first.
    pub const ALL: [Target; 4] = [Target::Sm80, Target::Sm89, Target::Sm90a, Target::Sm100a];

    /// The name that LLVM, ptxas and the PTX `.target` directive use.
    pub fn name(self) -> &'static str {
        match self {
            Target::Sm80 => "sm_80",
            Target::Sm89 => "sm_89",
            Target::Sm90a => "sm_90a",
            Target::Sm100a => "sm_100a",
        }
    }

    /// Whether warpgroups multiply from shared memory (`wgmma`: PTX ISA, sm_90a alone).
    pub fn has_wgmma(self) -> bool {
        self == Target::Sm90a
    }

    /// The most shared memory a block may have, in bytes, with the dynamic opt-in (CUDA C++
    /// Programming Guide, table "Technical Specifications per Compute Capability").
    pub fn max_shared_bytes(self) -> u32 {
        match self {
            Target::Sm80 => 163 * 1024,
            Target::Sm89 => 99 * 1024,
            Target::Sm90a | Target::Sm100a => 227 * 1024,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Target {
    type Err = CodegenError;

    fn from_str(text: &str) -> Result<Target, CodegenError> {
        Target::ALL
            .into_iter()
            .find(|target| target.name() == text)
            .ok_or_else(|| CodegenError::UnknownTarget { name: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for target in Target::ALL {
            assert_eq!(target.name().parse::<Target>().unwrap(), target);
        }
        let message = "sm_91".parse::<Target>().unwrap_err().to_string();
        assert!(message.contains("sm_91") && message.contains("sm_90a"), "{message}");
    }
}
