//! Launches: arguments and limits are checked, blocks handed to threads, the first fault chosen.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use super::detect::{BlockConflict, BlockRaces};
use super::exec::{BlockRunner, Launch, Stopped, coordinates};
use super::memory::Memory;
use super::options::EmulatorOptions;
use super::program::Program;
use crate::device::{KernelArg, LaunchConfig};
use crate::error::{Error, Fault, FaultKind};

/// Blocks that run at once when they may wait for one another: as many as a GPU with 132 multiprocessors
/// and two blocks on each.
const MOST_WAITING_BLOCKS: u64 = 264;

/// Runs a kernel to its end; gives the number of instructions run, counted once a warp.
pub(super) fn launch(
    program: &Program,
    config: &LaunchConfig,
    args: &[KernelArg],
    memory: &Memory,
    options: &EmulatorOptions,
) -> Result<u64, Error> {
    check_config(program, config, options)?;
    let parameters = parameters(program, args)?;
    let n_blocks: u64 = config.grid.iter().map(|&n| u64::from(n)).product();
    let allocations = memory.snapshot();
    let tracked = if options.block_races && n_blocks > 1 { allocations.len() } else { 0 };
    let launch = Launch {
        program,
        config: *config,
        parameters,
        races: BlockRaces::new(tracked, program.global_grain),
        allocations,
        options,
        n_multiprocessors: options.n_multiprocessors,
    };
    let result = run_blocks(&launch, n_blocks);
    for allocation in &launch.allocations {
        allocation.settle();
    }
    let n_executed = result?;
    match launch.races.first() {
        Some(conflict) => Err(block_race(&launch, conflict).into()),
        None => Ok(n_executed),
    }
}

fn refuse<T>(program: &Program, reason: String) -> Result<T, Error> {
    Err(Error::Launch { kernel: program.name.clone(), reason })
}

fn check_config(
    program: &Program,
    config: &LaunchConfig,
    options: &EmulatorOptions,
) -> Result<(), Error> {
    let LaunchConfig { grid, block, cluster, shared_bytes } = *config;
    if [grid, block, cluster].iter().flatten().any(|&extent| extent == 0) {
        return refuse(
            program,
            format!("grid {grid:?}, block {block:?} or cluster has an extent of 0"),
        );
    }
    let n_threads = block.iter().try_fold(1u32, |n, &extent| n.checked_mul(extent));
    let Some(n_threads) = n_threads.filter(|&n| n <= 1024 && block[2] <= 64) else {
        return refuse(program, format!("block {block:?} has more than 1024 threads, or 64 in z"));
    };
    if grid[0] > i32::MAX as u32 || grid[1] > 65_535 || grid[2] > 65_535 {
        return refuse(program, format!("grid {grid:?} exceeds 2147483647 x 65535 x 65535"));
    }
    // Writers are told apart by 32 bits.
    let n_blocks: u64 = grid.iter().map(|&n| u64::from(n)).product();
    if n_blocks >= u64::from(u32::MAX) {
        return refuse(program, format!("grid {grid:?} has too many blocks to emulate"));
    }
    if cluster.iter().product::<u32>() > 16 || grid.iter().zip(cluster).any(|(&g, c)| g % c != 0) {
        return refuse(program, format!("grid {grid:?} is not made of clusters {cluster:?}"));
    }
    if let Some(required) = program.required_threads
        && required != block
    {
        return refuse(program, format!("block {block:?}, but .reqntid is {required:?}"));
    }
    if let Some(most) = program.max_threads
        && n_threads > most.iter().product()
    {
        return refuse(program, format!("block {block:?} exceeds .maxntid {most:?}"));
    }
    if let Some(required) = program.required_cluster
        && required != cluster
    {
        return refuse(
            program,
            format!("cluster {cluster:?}, but .reqnctapercluster is {required:?}"),
        );
    }
    let shared = u64::from(program.static_shared_bytes) + u64::from(shared_bytes);
    if shared > u64::from(options.max_shared_bytes) {
        let (fixed, most) = (program.static_shared_bytes, options.max_shared_bytes);
        return refuse(
            program,
            format!(
                "{fixed} static and {shared_bytes} dynamic bytes of shared memory exceed {most}"
            ),
        );
    }
    Ok(())
}

fn parameters(program: &Program, args: &[KernelArg]) -> Result<Vec<u8>, Error> {
    let wanted = program.parameters.len();
    if args.len() != wanted {
        return refuse(program, format!("{} arguments given, {wanted} needed", args.len()));
    }
    let end = program.parameters.last().map_or(0, |&(offset, n_bytes)| offset + n_bytes);
    let mut bytes = vec![0; end as usize];
    for (index, (arg, &(offset, n_bytes))) in args.iter().zip(&program.parameters).enumerate() {
        let value = arg.to_bytes();
        if value.len() != n_bytes as usize {
            let given = value.len();
            return refuse(
                program,
                format!("argument {index} has {given} bytes, the parameter {n_bytes}"),
            );
        }
        bytes[offset as usize..][..value.len()].copy_from_slice(&value);
    }
    Ok(bytes)
}

/// Runs blocks in order of their index on all threads. Blocks after a faulty one are not started;
/// those before it are finished, so that the fault reported is that of the least faulty block.
fn run_blocks(launch: &Launch<'_>, n_blocks: u64) -> Result<u64, Error> {
    let next = AtomicU64::new(0);
    let end = AtomicU64::new(n_blocks);
    let n_executed = AtomicU64::new(0);
    let first: Mutex<Option<(u64, Box<Stopped>)>> = Mutex::new(None);
    let work = || {
        let mut runner = BlockRunner::default();
        loop {
            let block = next.fetch_add(1, Ordering::Relaxed);
            if block >= end.load(Ordering::Relaxed) {
                n_executed.fetch_add(runner.n_executed(), Ordering::Relaxed);
                return;
            }
            if let Err(stopped) = runner.run(launch, block) {
                end.fetch_min(block, Ordering::Relaxed);
                let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                if first.as_ref().is_none_or(|&(earlier, _)| block < earlier) {
                    *first = Some((block, stopped));
                }
            }
        }
    };
    let n_workers = (rayon::current_num_threads() as u64).min(n_blocks);
    if launch.program.waits_for_blocks() {
        // Blocks that wait for later ones only go on when those run, too.
        std::thread::scope(|scope| {
            for _ in 0..n_blocks.min(MOST_WAITING_BLOCKS) {
                scope.spawn(work);
            }
        });
    } else if n_workers <= 1 {
        work();
    } else {
        rayon::scope(|scope| {
            for _ in 0..n_workers {
                scope.spawn(|_| work());
            }
        });
    }
    match first.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, stopped)) => Err(stopped.fault.into()),
        None => Ok(n_executed.into_inner()),
    }
}

fn block_race(launch: &Launch<'_>, conflict: BlockConflict) -> Fault {
    let BlockConflict { writer, other, address } = conflict;
    let program = launch.program;
    let line = program.code[writer.pc as usize].line as usize;
    let place = |block: u32| coordinates(u64::from(block), launch.config.grid);
    let [bx, by, bz] = place(other.block);
    let [tx, ty, tz] = launch.thread(other.thread);
    let other_line = program.code[other.pc as usize].line;
    Fault {
        kind: FaultKind::BlockRace,
        kernel: program.name.clone(),
        block: place(writer.block),
        thread: launch.thread(writer.thread),
        line,
        text: program.line_text(line),
        detail: format!(
            "writes address {address:#x}, which thread ({tx},{ty},{tz}) of block ({bx},{by},{bz}) also writes (line {other_line})"
        ),
    }
}
