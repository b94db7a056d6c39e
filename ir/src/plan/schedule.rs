//! Schedules: typed records that say how a region is lowered, one variant per family.

use std::collections::BTreeMap;
use std::fmt;

/// What a field's value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Values {
    /// 1, 2, 4, 8, ...
    PowerOfTwo,
    /// 1, 2, 3, 4, ...
    Positive,
    /// 0 or 1.
    Flag,
}

/// Declares the families: enum, text name, the region classes it can lower, and fields.
macro_rules! schedules {
    ($(
        $(#[$family_doc:meta])*
        $family:ident $name:literal for $classes:expr => {
            $( $(#[$field_doc:meta])* $field:ident: $values:ident, )*
        }
    )*) => {
        /// How a region is lowered. All sizes are powers of two unless said otherwise; every schedule
        /// of a family is right for every region of its class, whatever the shapes.
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Schedule {$(
            $(#[$family_doc])*
            $family {$(
                $(#[$field_doc])*
                $field: u32,
            )*},
        )*}

        impl Schedule {
            /// The names of all families in text forms.
            pub const FAMILIES: &'static [&'static str] = &[$($name),*];

            /// The family's name in text forms, such as `tile`.
            pub fn family(&self) -> &'static str {
                match self {
                    $(Schedule::$family { .. } => $name,)*
                }
            }

            /// The classes of regions that the family can lower (see [`super::Region::class`]).
            pub fn classes(&self) -> &'static [&'static str] {
                match self {
                    $(Schedule::$family { .. } => &$classes,)*
                }
            }

            /// Names and values of the fields, in the order of their declaration.
            pub fn fields(&self) -> Vec<(&'static str, u32)> {
                match self {$(
                    Schedule::$family { $($field),* } => vec![$((stringify!($field), *$field)),*],
                )*}
            }

            /// The schedule of a family with these fields.
            ///
            /// # Errors
            /// When there is no such family, or it has other fields.
            pub fn from_fields(
                family: &str,
                fields: &BTreeMap<&str, u32>,
            ) -> Result<Schedule, ScheduleError> {
                match family {
                    $($name => {
                        const FIELDS: &[&str] = &[$(stringify!($field)),*];
                        only_known($name, FIELDS, fields)?;
                        Ok(Schedule::$family {
                            $($field: required($name, stringify!($field), fields)?,)*
                        })
                    })*
                    other => Err(ScheduleError::Family(other.to_owned())),
                }
            }

            fn field_values(&self) -> &'static [Values] {
                match self {
                    $(Schedule::$family { .. } => &[$(Values::$values),*],)*
                }
            }
        }
    };
}

schedules! {
    /// Each thread computes `unroll` groups of `vector` adjacent elements of the output.
    Pointwise "pointwise" for ["pointwise"] => {
        /// Threads in a block.
        threads: PowerOfTwo,
        /// Adjacent elements per thread.
        vector: PowerOfTwo,
        /// Groups per thread, a block's width apart.
        unroll: PowerOfTwo,
    }
    /// Each thread folds `vector` adjacent outputs alone (reductions over outer axes, windows).
    FoldThread "fold_thread" for ["reduce", "window", "contraction"] => {
        /// Threads in a block.
        threads: PowerOfTwo,
        /// Adjacent outputs per thread.
        vector: PowerOfTwo,
    }
    /// Each thread computes one output in each of `rows` neighbouring rows of the result, and reads what
    /// their windows share once. Adjacent threads have adjacent outputs of a row.
    Slide "slide" for ["window", "contraction"] => {
        /// Threads in a block.
        threads: PowerOfTwo,
        /// Rows per thread.
        rows: Positive,
    }
    /// `rows` outputs a block; `threads / rows` threads fold each together.
    FoldBlock "fold_block" for ["reduce", "window", "contraction"] => {
        /// Threads in a block.
        threads: PowerOfTwo,
        /// Outputs per block.
        rows: PowerOfTwo,
        /// Adjacent elements per thread and step.
        vector: PowerOfTwo,
    }
    /// `parts` blocks fold a slice of each output's elements; the last of them to end folds the parts.
    FoldSplit "fold_split" for ["reduce", "window", "contraction"] => {
        /// Threads in a block.
        threads: PowerOfTwo,
        /// Adjacent elements per thread and step.
        vector: PowerOfTwo,
        /// Slices per output; any number.
        parts: Positive,
    }
    /// `rows` rows a block, each by `threads / rows` threads that hold `vector * items` elements of it
    /// each: what fits is read once, longer rows are read again for each reduction that needs another
    /// one's result. Where neighbouring rows lie side by side in memory, a thread has elements of `vector`
    /// of them.
    Rows "rows" for ["reduce", "rows"] => {
        /// Threads in a block.
        threads: PowerOfTwo,
        /// Rows per block.
        rows: PowerOfTwo,
        /// Elements that a thread reads at once.
        vector: PowerOfTwo,
        /// How many such groups it holds.
        items: PowerOfTwo,
    }
    /// All steps of `batch` sequences in one direction by `blocks` blocks that wait for one another, fewer if
    /// there are fewer hidden units: all of them must be able to run at once. A block keeps the recurrent
    /// weights of its units as long as registers suffice.
    Recurrent "recurrent" for ["recurrent"] => {
        /// Threads in a block.
        threads: PowerOfTwo,
        /// Blocks that share the hidden units.
        blocks: PowerOfTwo,
        /// Sequences.
        batch: PowerOfTwo,
    }
    /// Each row by `blocks` blocks that wait for one another: all of them must be able to run at once.
    RowGroups "row_groups" for ["reduce", "rows"] => {
        /// Threads in a block.
        threads: PowerOfTwo,
        /// Elements that a thread reads at once.
        vector: PowerOfTwo,
        /// How many such groups it holds.
        items: PowerOfTwo,
        /// Blocks per row.
        blocks: Positive,
    }
    /// `rows` rows a block, each by `threads / rows` threads that scan `items` elements each a step; the
    /// carry is kept between steps.
    Scan "scan" for ["scan"] => {
        /// Threads in a block.
        threads: PowerOfTwo,
        /// Rows per block.
        rows: PowerOfTwo,
        /// Elements per thread and step.
        items: PowerOfTwo,
    }
    /// Tiles of the result in registers, operands through shared memory, fused multiply-adds.
    Tile "tile" for ["contraction", "reduced"] => {
        /// Rows of the result per block.
        block_m: PowerOfTwo,
        /// Columns of the result per block.
        block_n: PowerOfTwo,
        /// Inner elements per step.
        block_k: PowerOfTwo,
        /// Rows per thread.
        thread_m: PowerOfTwo,
        /// Columns per thread.
        thread_n: PowerOfTwo,
    }
    /// Tiles of the result in registers, operands through shared memory, tensor cores. The columns are
    /// the positions that are adjacent in the result. For sums in `f32`, with a precision other than
    /// `ieee`.
    Mma "mma" for ["contraction", "reduced"] => {
        /// Rows of the result per block, at least 16 per warp.
        block_m: PowerOfTwo,
        /// Columns of the result per block, at least 8 per warp.
        block_n: PowerOfTwo,
        /// Warps along the rows.
        warps_m: PowerOfTwo,
        /// Warps along the columns.
        warps_n: PowerOfTwo,
        /// Tiles of each operand in shared memory.
        stages: PowerOfTwo,
        /// Slices of the inner elements that different blocks add up; any number.
        splits: Positive,
    }
    /// As `mma`, multiplied asynchronously from shared memory by warpgroups of four warps. For `sm_90a`.
    Wgmma "wgmma" for ["contraction", "reduced"] => {
        /// Rows of the result per block, at least 64 per warpgroup.
        block_m: PowerOfTwo,
        /// Columns of the result per block, 8 to 256 per warpgroup.
        block_n: PowerOfTwo,
        /// Warpgroups along the rows.
        groups_m: PowerOfTwo,
        /// Warpgroups along the columns.
        groups_n: PowerOfTwo,
        /// Tiles of each operand in shared memory.
        stages: PowerOfTwo,
        /// Slices of the inner elements that different blocks add up; any number.
        splits: Positive,
    }
    /// As `wgmma`, with operands copied asynchronously, several steps ahead: the left one as it is, rounded on
    /// the way to registers, the right one as whole factors, which a kernel before packs where it is not
    /// stored like that. The rows are the left operand's positions. For `f32` operands and the precisions
    /// `tf32` and `fp32`, others are multiplied as by `wgmma`.
    Pipeline "pipeline" for ["contraction", "reduced"] => {
        /// Rows of the result per block, at least 64 per warpgroup.
        block_m: PowerOfTwo,
        /// Columns of the result per block, 8 to 256 per warpgroup.
        block_n: PowerOfTwo,
        /// Warpgroups along the rows.
        groups_m: PowerOfTwo,
        /// Warpgroups along the columns.
        groups_n: PowerOfTwo,
        /// Tiles of each operand in shared memory, at least two.
        stages: Positive,
        /// Slices of the inner elements that different blocks add up; any number.
        splits: Positive,
        /// 1 where the right operand's elements are rounded to whole factors already, else 0.
        packed: Flag,
    }
    /// As `pipeline`, for convolutions: what the taps of a block's positions read of some channels is rounded
    /// and written to shared memory once, from where warpgroups multiply it. Contractions whose windows are of
    /// another kind are multiplied as by `pipeline`.
    Patch "patch" for ["contraction", "reduced"] => {
        /// Positions of the result per block, at least 64 per warpgroup.
        block_m: PowerOfTwo,
        /// Columns of the result per block, 8 to 256 per warpgroup.
        block_n: PowerOfTwo,
        /// Warpgroups along the positions.
        groups_m: PowerOfTwo,
        /// Warpgroups along the columns.
        groups_n: PowerOfTwo,
        /// Positions along the last axis, the others along the one before: 64 in a row or 8 by 8 are multiplied
        /// together; other shapes as by `pipeline`.
        width: PowerOfTwo,
        /// Tiles of the right operand in shared memory, at least two.
        stages: Positive,
        /// As in `pipeline`.
        packed: Flag,
    }
    /// As `wgmma`, for `f32` operands with the precision `fp32` or `tf32`: kernels in front write the elements of each
    /// as scaled sums of two `f16` numbers, or one for `tf32`, whose products are added up; tiles with numbers that this cannot hold
    /// are computed again by a last kernel as by `tile`. Other operands and precisions are multiplied as by `wgmma`.
    Halves "halves" for ["contraction"] => {
        /// Rows of the result per block, at least 64 per warpgroup.
        block_m: PowerOfTwo,
        /// Columns of the result per block, 64 to 256 per warpgroup.
        block_n: PowerOfTwo,
        /// Warpgroups along the rows.
        groups_m: PowerOfTwo,
        /// Warpgroups along the columns.
        groups_n: PowerOfTwo,
        /// Tiles of a half of each operand in shared memory, at least four.
        stages: Positive,
        /// 1 where the right operand depends on weights alone, so that it is split when a bundle is loaded; else 0.
        prepared: Flag,
    }
    /// Copies elements, rounded to the factors of the region's precision.
    Pack "pack" for ["pointwise"] => {
        /// Threads in a block.
        threads: PowerOfTwo,
        /// Adjacent elements per thread.
        vector: PowerOfTwo,
    }
}

/// Two blocks of [`Schedule::Pipeline`] or [`Schedule::Patch`] run at once on a multiprocessor, with 128 registers
/// a thread, where each has at most so many bytes of shared memory.
pub const PAIRED_BYTES: u32 = 112 * 1024;

/// As [`PAIRED_BYTES`]: threads.
pub const PAIRED_THREADS: u32 = 256;

/// As [`PAIRED_BYTES`]: registers of sums.
pub const PAIRED_SUMS: u32 = 64;

/// Inner elements that [`Schedule::Pipeline`] packs an operand's lines to a multiple of.
pub const PACKED_MULTIPLE: u32 = 4;

/// What is wrong with a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// There is no such family.
    #[error("there is no schedule family `{0}`")]
    Family(String),
    /// The family has no such field.
    #[error("`{family}` has no field `{field}`")]
    Unknown {
        /// The family.
        family: &'static str,
        /// The name given.
        field: String,
    },
    /// A field is missing.
    #[error("`{family}` needs the field `{field}`")]
    Missing {
        /// The family.
        family: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A field's value is impossible for every region.
    #[error("`{field}` of `{family}` is {value}, not {wanted}")]
    Value {
        /// The family.
        family: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u32,
        /// What it may be.
        wanted: &'static str,
    },
}

impl Schedule {
    /// Whether each field has a value its family allows.
    ///
    /// # Errors
    /// The first field that has not.
    pub fn check(&self) -> Result<(), ScheduleError> {
        for ((field, value), values) in self.fields().into_iter().zip(self.field_values()) {
            let (holds, wanted) = match values {
                Values::PowerOfTwo => (value.is_power_of_two(), "a power of two"),
                Values::Positive => (value > 0, "positive"),
                Values::Flag => (value <= 1, "0 or 1"),
            };
            if !holds {
                return Err(ScheduleError::Value { family: self.family(), field, value, wanted });
            }
        }
        Ok(())
    }
}

fn only_known(
    family: &'static str,
    known: &[&str],
    fields: &BTreeMap<&str, u32>,
) -> Result<(), ScheduleError> {
    match fields.keys().find(|field| !known.contains(field)) {
        Some(&field) => Err(ScheduleError::Unknown { family, field: field.to_owned() }),
        None => Ok(()),
    }
}

fn required(
    family: &'static str,
    field: &'static str,
    fields: &BTreeMap<&str, u32>,
) -> Result<u32, ScheduleError> {
    fields.get(field).copied().ok_or(ScheduleError::Missing { family, field })
}

impl fmt::Display for Schedule {
    /// `fold_thread(threads = 128, vector = 1)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.family())?;
        for (position, (name, value)) in self.fields().into_iter().enumerate() {
            write!(f, "{}{name} = {value}", if position == 0 { "" } else { ", " })?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_make_the_schedule_again() {
        let schedule = Schedule::FoldSplit { threads: 256, vector: 4, parts: 3 };
        assert_eq!(schedule.to_string(), "fold_split(threads = 256, vector = 4, parts = 3)");
        let mut fields = BTreeMap::from_iter(schedule.fields());
        assert_eq!(Schedule::from_fields("fold_split", &fields), Ok(schedule.clone()));
        assert_eq!(schedule.check(), Ok(()));
        fields.insert("parts", 0);
        let zero = Schedule::from_fields("fold_split", &fields).unwrap();
        assert_eq!(
            zero.check().unwrap_err().to_string(),
            "`parts` of `fold_split` is 0, not positive"
        );
        fields.insert("vector", 3);
        let odd = Schedule::from_fields("fold_split", &fields).unwrap();
        assert_eq!(
            odd.check().unwrap_err().to_string(),
            "`vector` of `fold_split` is 3, not a power of two"
        );
    }

    #[test]
    fn other_families_and_fields_are_errors() {
        let fields = BTreeMap::from([("threads", 128), ("rows", 1)]);
        let message = |family| Schedule::from_fields(family, &fields).unwrap_err().to_string();
        assert_eq!(message("fold_thread"), "`fold_thread` has no field `rows`");
        assert_eq!(message("fold_block"), "`fold_block` needs the field `vector`");
        assert_eq!(message("magic"), "there is no schedule family `magic`");
    }
}
