//! Schedules: typed records that say how a region is lowered, one variant per family.

/// How a region is lowered. All sizes are powers of two unless said otherwise; every schedule of a
/// family is right for every region of its class, whatever the shapes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Schedule {
    /// Each thread computes `unroll` groups of `vector` adjacent elements of the output.
    Pointwise {
        /// Threads in a block.
        threads: u32,
        /// Adjacent elements per thread.
        vector: u32,
        /// Groups per thread, a block's width apart.
        unroll: u32,
    },
    /// Each thread folds `vector` adjacent outputs alone (reductions over outer axes, windows).
    FoldThread {
        /// Threads in a block.
        threads: u32,
        /// Adjacent outputs per thread.
        vector: u32,
    },
    /// `rows` outputs a block; `threads / rows` threads fold each together.
    FoldBlock {
        /// Threads in a block.
        threads: u32,
        /// Outputs per block.
        rows: u32,
        /// Adjacent elements per thread and step.
        vector: u32,
    },
    /// Two kernels: `parts` blocks fold a slice of each output's elements, then one folds the parts.
    FoldSplit {
        /// Threads in a block.
        threads: u32,
        /// Adjacent elements per thread and step.
        vector: u32,
        /// Slices per output; any number.
        parts: u32,
    },
    /// One block a row, `threads * items` elements a step, the carry kept between steps.
    Scan {
        /// Threads in a block.
        threads: u32,
        /// Adjacent elements per thread and step.
        items: u32,
    },
    /// Tiles of the result in registers, operands through shared memory, fused multiply-adds.
    Tile {
        /// Rows of the result per block.
        block_m: u32,
        /// Columns of the result per block.
        block_n: u32,
        /// Inner elements per step.
        block_k: u32,
        /// Rows per thread.
        thread_m: u32,
        /// Columns per thread.
        thread_n: u32,
    },
}
