//! Special registers (PTX ISA section 10).

use super::super::program::Special;
use super::Launch;
use super::block::BlockMemory;
use super::registers::{LANES, row_of};
use super::warp::Warp;

impl Warp {
    pub(super) fn special(
        &self,
        which: Special,
        memory: &BlockMemory,
        launch: &Launch<'_>,
    ) -> [u64; LANES] {
        let config = &launch.config;
        let block = memory.block;
        let uniform = |value: u32| [u64::from(value); LANES];
        let lane = |f: fn(u32) -> u32| row_of(|lane| u64::from(f(lane as u32)));
        let clusters = |axis: usize| (block[axis] / config.cluster[axis], config.cluster[axis]);
        match which {
            Special::Tid(axis) => row_of(|lane| {
                let thread = launch.thread(self.index * 32 + lane as u32);
                u64::from(thread[usize::from(axis)])
            }),
            Special::Ntid(axis) => uniform(config.block[usize::from(axis)]),
            Special::Ctaid(axis) => uniform(block[usize::from(axis)]),
            Special::Nctaid(axis) => uniform(config.grid[usize::from(axis)]),
            Special::ClusterCtaid(axis) => {
                uniform(block[usize::from(axis)] % config.cluster[usize::from(axis)])
            }
            Special::ClusterNctaid(axis) => uniform(config.cluster[usize::from(axis)]),
            Special::Clusterid(axis) => uniform(clusters(usize::from(axis)).0),
            Special::Nclusterid(axis) => {
                let axis = usize::from(axis);
                uniform(config.grid[axis] / config.cluster[axis])
            }
            Special::ClusterCtarank => {
                let inside = |axis: usize| block[axis] % config.cluster[axis];
                let row = inside(2) * config.cluster[1] + inside(1);
                uniform(row * config.cluster[0] + inside(0))
            }
            Special::ClusterNctarank => uniform(config.cluster.iter().product()),
            Special::Laneid => lane(|lane| lane),
            Special::Warpid => uniform(self.index),
            Special::Nwarpid => uniform(launch.n_threads().div_ceil(32)),
            Special::Zero => uniform(0),
            Special::Nsmid => uniform(launch.n_multiprocessors),
            Special::LanemaskEq => lane(|lane| 1 << lane),
            Special::LanemaskLe => lane(|lane| u32::MAX >> (31 - lane)),
            Special::LanemaskLt => lane(|lane| (1 << lane) - 1),
            Special::LanemaskGe => lane(|lane| u32::MAX << lane),
            Special::LanemaskGt => lane(|lane| (u32::MAX << lane) << 1),
            Special::Clock => [self.n_executed; LANES],
            Special::DynamicSharedBytes => uniform(config.shared_bytes),
            Special::TotalSharedBytes => {
                uniform(config.shared_bytes + launch.program.static_shared_bytes)
            }
        }
    }
}
