//! Fundamental types and state spaces (PTX ISA section 5, "State Spaces, Types, and Variables").

/// A PTX type suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[rustfmt::skip]
pub(crate) enum Type {
    B8, B16, B32, B64, B128,
    U8, U16, U32, U64,
    S8, S16, S32, S64,
    F16, F16x2, Bf16, Bf16x2, F32, F64,
    Pred,
}

impl Type {
    /// The type that a suffix without its dot names.
    #[rustfmt::skip]
    pub(crate) fn from_name(name: &str) -> Option<Type> {
        Some(match name {
            "b8" => Type::B8, "b16" => Type::B16, "b32" => Type::B32, "b64" => Type::B64,
            "b128" => Type::B128,
            "u8" => Type::U8, "u16" => Type::U16, "u32" => Type::U32, "u64" => Type::U64,
            "s8" => Type::S8, "s16" => Type::S16, "s32" => Type::S32, "s64" => Type::S64,
            "f16" => Type::F16, "f16x2" => Type::F16x2, "bf16" => Type::Bf16,
            "bf16x2" => Type::Bf16x2, "f32" => Type::F32, "f64" => Type::F64,
            "pred" => Type::Pred,
            _ => return None,
        })
    }

    /// Size in memory in bytes; 0 for predicates, which have none.
    pub(crate) fn n_bytes(self) -> u32 {
        match self {
            Type::B8 | Type::U8 | Type::S8 => 1,
            Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::Bf16 => 2,
            Type::B32 | Type::U32 | Type::S32 | Type::F32 | Type::F16x2 | Type::Bf16x2 => 4,
            Type::B64 | Type::U64 | Type::S64 | Type::F64 => 8,
            Type::B128 => 16,
            Type::Pred => 0,
        }
    }

    /// Whether values widen by their sign.
    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64)
    }

    /// Whether this is a floating-point type, packed ones included.
    pub(crate) fn is_float(self) -> bool {
        matches!(self, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2 | Type::F32 | Type::F64)
    }
}

/// A state space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    /// No space named: the address says which.
    Generic,
    /// Device memory.
    Global,
    /// Read-only device memory.
    Const,
    /// Memory of a block.
    Shared,
    /// Memory of a thread.
    Local,
    /// Kernel parameters.
    Param,
}

impl Space {
    /// The space that an opcode part names; `shared::cta` and `param::entry` are their own spaces.
    pub(crate) fn from_name(name: &str) -> Option<Space> {
        Some(match name {
            "global" => Space::Global,
            "const" => Space::Const,
            "shared" | "shared::cta" => Space::Shared,
            "local" => Space::Local,
            "param" | "param::entry" => Space::Param,
            _ => return None,
        })
    }

    /// The name used in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Space::Generic => "generic",
            Space::Global => "global",
            Space::Const => "constant",
            Space::Shared => "shared",
            Space::Local => "local",
            Space::Param => "parameter",
        }
    }
}
