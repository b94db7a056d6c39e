//! Checks that a manifest does not contradict itself.
//!
//! A runtime indexes by what a manifest says, so that everything it relies on is checked here, once: a
//! checked manifest has no index out of range, no argument of the wrong kind, no undeclared
//! symbol, and no buffer that is read before a step writes it.

use std::collections::{BTreeMap, BTreeSet};

use crate::archive::is_module_entry;
use crate::manifest::{
    Arg, BUFFER_ALIGN, BufferKind, Kernel, Launch, Manifest, Param, Port, SCHEMA, Step, TargetPlan,
};
use crate::{DType, Dim, DimRange, ManifestError, Symbol, Target};

/// Threads a block may have (CUDA C++ Programming Guide, technical specifications per compute
/// capability): in all, and in x, y and z.
const MAX_BLOCK_THREADS: u64 = 1024;
const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];

/// Blocks a cluster may have: 8 everywhere, 16 with the non-portable opt-in (ibid.).
const MAX_CLUSTER_BLOCKS: u64 = 16;

/// Shared memory a block may have, 227 KiB on compute capability 9.0 and 10.0 (ibid.), the largest.
const MAX_SHARED_BYTES: u32 = 227 * 1024;

/// Choices may be nested no deeper; real ones are not nested at all.
const MAX_CHOICE_DEPTH: usize = 16;

type Check = Result<(), ManifestError>;

impl Manifest {
    /// Checks all references, kinds, sizes and names inside the manifest.
    ///
    /// # Errors
    /// The first contradiction, with its place.
    pub fn check(&self) -> Result<(), ManifestError> {
        if self.schema == 0 || self.schema > SCHEMA {
            return fail("schema", format!("{} is not between 1 and {SCHEMA}", self.schema));
        }
        self.check_signature()?;
        self.check_weights()?;
        if self.targets.is_empty() {
            return fail("targets", "there is none");
        }
        unique("targets", self.targets.iter().map(|plan| plan.target.as_str()))?;
        let ranges = self.signature.ranges();
        for plan in &self.targets {
            let place = format!("targets[{}]", plan.target);
            PlanChecker { manifest: self, plan, ranges: &ranges, place }.check()?;
        }
        Ok(())
    }

    fn check_signature(&self) -> Check {
        let signature = &self.signature;
        unique("signature.dims", signature.dims.iter().map(|decl| decl.name.as_ref()))?;
        for decl in &signature.dims {
            let place = format!("signature.dims[{}]", decl.name);
            if decl.name.parse::<Dim>() != Ok(Dim::symbol(decl.name.clone())) {
                return fail(place, "this is not a symbol's name");
            }
            let DimRange { min, max, divisor } = decl.range;
            if min < 0 || max < min || divisor < 1 {
                return fail(
                    place,
                    format!("the range {min}..={max} step {divisor} makes no sense"),
                );
            }
        }
        let ranges = signature.ranges();
        for (kind, ports) in [("inputs", &signature.inputs), ("outputs", &signature.outputs)] {
            unique(&format!("signature.{kind}"), ports.iter().map(|port| port.name.as_str()))?;
            for Port { name, shape, .. } in ports {
                sizes(&format!("signature.{kind}[{name}]"), shape, &ranges)?;
            }
        }
        match signature.undetermined() {
            Some(symbol) => {
                fail(format!("signature.dims[{symbol}]"), "no input's shape determines it")
            }
            None => Ok(()),
        }
    }

    fn check_weights(&self) -> Check {
        unique("weights", self.weights.iter().map(|decl| decl.name.as_str()))?;
        for decl in &self.weights {
            let bytes = decl
                .shape
                .iter()
                .try_fold(decl.dtype.size() as u64, |bytes, &size| bytes.checked_mul(size))
                .filter(|&bytes| bytes <= i64::MAX as u64);
            if bytes.is_none() {
                return fail(format!("weights[{}]", decl.name), "its size overflows");
            }
        }
        Ok(())
    }
}

struct PlanChecker<'a> {
    manifest: &'a Manifest,
    plan: &'a TargetPlan,
    ranges: &'a BTreeMap<Symbol, DimRange>,
    place: String,
}

/// Which of the two programs.
#[derive(Clone, Copy, PartialEq)]
enum Program {
    Prepare,
    Run,
}

impl PlanChecker<'_> {
    fn check(&self) -> Check {
        if let Err(error) = self.plan.target.parse::<Target>() {
            return fail(&self.place, error);
        }
        for (index, kernel) in self.plan.kernels.iter().enumerate() {
            self.check_kernel(&self.at(format!("kernels[{index}]")), kernel)?;
        }
        for (index, region) in self.plan.regions.iter().enumerate() {
            let place = self.at(format!("regions[{index}]"));
            let written = region.writes.iter().copied();
            for buffer in region.reads.iter().copied().chain(written) {
                self.buffer(&place, buffer)?;
            }
        }
        for index in 0..self.plan.buffers.len() {
            self.check_buffer(index)?;
        }
        for (name, size) in [
            ("scratch_bytes", &self.plan.scratch_bytes),
            ("prepared_bytes", &self.plan.prepared_bytes),
            ("counter_bytes", &self.plan.counter_bytes),
        ] {
            self.size(&self.at(name), size)?;
            if name != "scratch_bytes" && size.as_const().is_none() {
                return fail(self.at(name), "it depends on a symbol");
            }
        }
        self.check_programs()
    }

    fn at(&self, rest: impl std::fmt::Display) -> String {
        format!("{}.{rest}", self.place)
    }

    fn check_kernel(&self, place: &str, kernel: &Kernel) -> Check {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%');
        if kernel.name.is_empty() || !kernel.name.chars().all(is_name) {
            return fail(place, format!("`{}` is not a PTX identifier", kernel.name));
        }
        if !is_module_entry(&kernel.ptx, "ptx", "ptx") {
            return fail(place, format!("`{}` is not ptx/<target>/<module>.ptx", kernel.ptx));
        }
        let product = |sizes: [u32; 3]| sizes.iter().map(|&n| u64::from(n)).product::<u64>();
        let fits = kernel.block.iter().zip(MAX_BLOCK).all(|(&n, max)| (1..=max).contains(&n));
        if !fits || product(kernel.block) > MAX_BLOCK_THREADS {
            return fail(place, format!("{:?} threads cannot be in a block", kernel.block));
        }
        let fits = kernel.cluster.iter().all(|n| (1..=MAX_CLUSTER_BLOCKS as u32).contains(n));
        if !fits || product(kernel.cluster) > MAX_CLUSTER_BLOCKS {
            return fail(place, format!("{:?} blocks cannot be in a cluster", kernel.cluster));
        }
        if kernel.dynamic_shared_bytes > MAX_SHARED_BYTES {
            let bytes = kernel.dynamic_shared_bytes;
            return fail(place, format!("{bytes} bytes of shared memory are too many"));
        }
        if self.plan.regions.get(kernel.region).is_none() {
            return fail(place, format!("there is no region {}", kernel.region));
        }
        for param in &kernel.params {
            if let Param::Scalar { name, dtype } = param
                && !matches!(dtype, DType::I32 | DType::I64)
            {
                return fail(place, format!("parameter `{name}` is {dtype}, not i32 or i64"));
            }
        }
        symbols(place, [&kernel.bytes, &kernel.flops], self.ranges)
    }

    fn check_buffer(&self, index: usize) -> Check {
        let buffer = &self.plan.buffers[index];
        let place = self.at(format!("buffers[{index}]"));
        sizes(&place, &buffer.shape, self.ranges)?;
        let signature = &self.manifest.signature;
        let (dtype, shape) = match &buffer.kind {
            BufferKind::Input { index } => match signature.inputs.get(*index) {
                Some(port) => (port.dtype, port.shape.clone()),
                None => return fail(place, format!("there is no input {index}")),
            },
            BufferKind::Output { index } => match signature.outputs.get(*index) {
                Some(port) => (port.dtype, port.shape.clone()),
                None => return fail(place, format!("there is no output {index}")),
            },
            BufferKind::Weight { index } => match self.manifest.weights.get(*index) {
                Some(decl) => (
                    decl.dtype,
                    decl.shape.iter().map(|&size| Dim::constant(size as i64)).collect(),
                ),
                None => return fail(place, format!("there is no weight {index}")),
            },
            BufferKind::Prepared { offset } | BufferKind::Counters { offset } => {
                self.check_offset(&place, offset)?;
                if offset.as_const().is_none() || buffer.bytes().as_const().is_none() {
                    let kind = match buffer.kind {
                        BufferKind::Prepared { .. } => "a prepared buffer's",
                        _ => "the counters'",
                    };
                    return fail(place, format!("{kind} place depends on a symbol"));
                }
                return Ok(());
            }
            BufferKind::Scratch { offset } => return self.check_offset(&place, offset),
        };
        let n_elements = |shape: &[Dim]| shape.iter().product::<Dim>();
        if dtype != buffer.dtype || n_elements(&shape) != n_elements(&buffer.shape) {
            let named = shape.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ");
            return fail(place, format!("it must hold {dtype}[{named}], as the signature says"));
        }
        Ok(())
    }

    fn check_offset(&self, place: &str, offset: &Dim) -> Check {
        self.size(place, offset)?;
        let divisor = offset.divisor(self.ranges);
        if divisor % BUFFER_ALIGN as i64 != 0 {
            return fail(place, format!("the offset {offset} is not a multiple of {BUFFER_ALIGN}"));
        }
        Ok(())
    }

    fn size(&self, place: &str, size: &Dim) -> Check {
        sizes(place, std::slice::from_ref(size), self.ranges)
    }

    fn buffer(&self, place: &str, index: usize) -> Result<&BufferKind, ManifestError> {
        match self.plan.buffers.get(index) {
            Some(buffer) => Ok(&buffer.kind),
            None => fail(place, format!("there is no buffer {index}")),
        }
    }

    fn check_programs(&self) -> Check {
        let mut defined = BTreeSet::new();
        for (index, buffer) in self.plan.buffers.iter().enumerate() {
            if matches!(buffer.kind, BufferKind::Weight { .. }) {
                defined.insert(index);
            }
        }
        self.check_steps(Program::Prepare, "prepare", &self.plan.prepare, &mut defined, 0)?;
        let is =
            |index: &usize, keep: fn(&BufferKind) -> bool| keep(&self.plan.buffers[*index].kind);
        defined.retain(|index| !is(index, |kind| matches!(kind, BufferKind::Scratch { .. })));
        let inputs = (0..self.plan.buffers.len())
            .filter(|index| is(index, |kind| matches!(kind, BufferKind::Input { .. })));
        defined.extend(inputs);
        self.check_steps(Program::Run, "run", &self.plan.run, &mut defined, 0)?;
        for output in 0..self.manifest.signature.outputs.len() {
            let kind = BufferKind::Output { index: output };
            if !defined.iter().any(|&index| self.plan.buffers[index].kind == kind) {
                return fail(self.at("run"), format!("no step writes output {output}"));
            }
        }
        Ok(())
    }

    /// Checks steps; `defined` holds the buffers that have contents and gains those written.
    fn check_steps(
        &self,
        program: Program,
        name: &str,
        steps: &[Step],
        defined: &mut BTreeSet<usize>,
        depth: usize,
    ) -> Check {
        for (index, step) in steps.iter().enumerate() {
            let place = self.at(format!("{name}[{index}]"));
            match step {
                Step::Launch(launch) => self.check_launch(program, &place, launch, defined)?,
                Step::Copy { from, to } => {
                    self.check_read(program, &place, *from, defined)?;
                    self.check_write(program, &place, *to)?;
                    let bytes = |index: usize| self.plan.buffers[index].bytes();
                    if bytes(*from) != bytes(*to) {
                        return fail(place, "source and destination differ in size");
                    }
                    defined.insert(*to);
                }
                Step::Choice { selected, alternatives, .. } => {
                    if depth >= MAX_CHOICE_DEPTH {
                        return fail(place, "choices are nested too deeply");
                    }
                    if alternatives.get(*selected).is_none() {
                        return fail(place, format!("there is no alternative {selected}"));
                    }
                    let mut common: Option<BTreeSet<usize>> = None;
                    for (which, alternative) in alternatives.iter().enumerate() {
                        let name = format!("{name}[{index}].alternatives[{which}]");
                        let mut after = defined.clone();
                        let steps = &alternative.steps;
                        self.check_steps(program, &name, steps, &mut after, depth + 1)?;
                        common = Some(match common {
                            Some(common) => common.intersection(&after).copied().collect(),
                            None => after,
                        });
                    }
                    *defined = common.unwrap_or_default();
                }
            }
        }
        Ok(())
    }

    fn check_launch(
        &self,
        program: Program,
        place: &str,
        launch: &Launch,
        defined: &mut BTreeSet<usize>,
    ) -> Check {
        let Some(kernel) = self.plan.kernels.get(launch.kernel) else {
            return fail(place, format!("there is no kernel {}", launch.kernel));
        };
        self.program_sizes(program, place, &launch.grid)?;
        if launch.args.len() != kernel.params.len() {
            let (given, taken) = (launch.args.len(), kernel.params.len());
            let reason = format!("{given} arguments, but `{}` takes {taken}", kernel.name);
            return fail(place, reason);
        }
        let mut written = Vec::new();
        for (index, (arg, param)) in launch.args.iter().zip(&kernel.params).enumerate() {
            let place = format!("{place}.args[{index}]");
            match (arg, param) {
                (Arg::Buffer { buffer }, Param::Pointer { name, dtype, written: is_written }) => {
                    self.buffer(&place, *buffer)?;
                    let found = self.plan.buffers[*buffer].dtype;
                    if found != *dtype {
                        return fail(place, format!("`{name}` points to {dtype}, not {found}"));
                    }
                    if *is_written {
                        self.check_write(program, &place, *buffer)?;
                        written.push(*buffer);
                    } else {
                        self.check_read(program, &place, *buffer, defined)?;
                    }
                }
                (Arg::Scalar { value }, Param::Scalar { .. }) => {
                    self.program_sizes(program, &place, std::slice::from_ref(value))?;
                }
                (_, Param::Pointer { name, .. }) => {
                    return fail(place, format!("`{name}` takes a buffer"));
                }
                (_, Param::Scalar { name, .. }) => {
                    return fail(place, format!("`{name}` takes a number"));
                }
            }
        }
        defined.extend(written);
        Ok(())
    }

    /// Sizes in the prepare program may not depend on symbols: it runs before there are inputs.
    fn program_sizes(&self, program: Program, place: &str, sizes: &[Dim]) -> Check {
        symbols(place, sizes, self.ranges)?;
        match sizes.iter().find(|size| program == Program::Prepare && !size.symbols().is_empty()) {
            Some(size) => fail(place, format!("the prepare program depends on `{size}`")),
            None => Ok(()),
        }
    }

    fn check_read(
        &self,
        program: Program,
        place: &str,
        index: usize,
        defined: &BTreeSet<usize>,
    ) -> Check {
        self.check_prepare_buffer(program, place, index)?;
        if !defined.contains(&index) {
            let name = &self.plan.buffers[index].name;
            return fail(place, format!("buffer {index} (`{name}`) is read before it is written"));
        }
        Ok(())
    }

    fn check_write(&self, program: Program, place: &str, index: usize) -> Check {
        self.check_prepare_buffer(program, place, index)?;
        match (self.buffer(place, index)?, program) {
            (BufferKind::Input { .. } | BufferKind::Weight { .. }, _) => fail(
                place,
                format!("buffer {index} is an input or weight, which nothing may write"),
            ),
            // Several runs may be under way at once, and they share the prepared buffers.
            (BufferKind::Prepared { .. }, Program::Run) => {
                fail(place, format!("the run program writes the prepared buffer {index}"))
            }
            _ => Ok(()),
        }
    }

    fn check_prepare_buffer(&self, program: Program, place: &str, index: usize) -> Check {
        let kind = self.buffer(place, index)?;
        if program == Program::Run {
            return Ok(());
        }
        if matches!(kind, BufferKind::Input { .. } | BufferKind::Output { .. }) {
            return fail(place, format!("the prepare program uses the caller's buffer {index}"));
        }
        self.program_sizes(program, place, &self.plan.buffers[index].shape)?;
        match kind {
            BufferKind::Scratch { offset } => {
                self.program_sizes(program, place, std::slice::from_ref(offset))
            }
            _ => Ok(()),
        }
    }
}

fn fail<T>(place: impl Into<String>, reason: impl ToString) -> Result<T, ManifestError> {
    Err(ManifestError { place: place.into(), reason: reason.to_string() })
}

fn unique<'a>(place: &str, names: impl Iterator<Item = &'a str>) -> Check {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return fail(place, format!("two are named `{name}`"));
        }
    }
    Ok(())
}

/// Checks that only declared symbols occur.
fn symbols<'a>(
    place: &str,
    sizes: impl IntoIterator<Item = &'a Dim>,
    ranges: &BTreeMap<Symbol, DimRange>,
) -> Check {
    let undeclared = sizes
        .into_iter()
        .flat_map(|size| size.symbols())
        .find(|symbol| !ranges.contains_key(symbol));
    match undeclared {
        Some(symbol) => fail(place, format!("the dimension `{symbol}` is not declared")),
        None => Ok(()),
    }
}

/// Checks that only declared symbols occur and that the sizes are not negative.
fn sizes(place: &str, sizes: &[Dim], ranges: &BTreeMap<Symbol, DimRange>) -> Check {
    symbols(place, sizes, ranges)?;
    match sizes.iter().find(|size| size.bounds(ranges).1 < 0) {
        Some(size) => fail(place, format!("the size {size} is negative")),
        None => Ok(()),
    }
}
