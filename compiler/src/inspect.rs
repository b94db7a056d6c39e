//! What is in a bundle, for people.

use std::fmt::Write;

use fornax_bundle::manifest::{
    Buffer, BufferKind, Kernel, Launch, Port, Step, TargetPlan, WeightDecl,
};
use fornax_bundle::{Bundle, Dim, Dims, Precision};

/// Which parts of a bundle to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parts {
    /// Kernels with their launches.
    pub kernels: bool,
    /// The imported graph's text.
    pub graph: bool,
    /// Buffers and arenas.
    pub memory: bool,
}

/// Describes a bundle: signature and regions always, the rest as asked.
pub fn inspect(bundle: &Bundle, parts: Parts) -> String {
    let mut text = String::new();
    describe_model(bundle, &mut text);
    for plan in &bundle.manifest().targets {
        text.push('\n');
        describe_plan(plan, parts, &mut text);
    }
    if parts.graph {
        let _ = writeln!(text, "\n{}", bundle.parts().graph);
    }
    text
}

fn describe_model(bundle: &Bundle, text: &mut String) {
    let manifest = bundle.manifest();
    let _ = writeln!(text, "model      {}", manifest.model);
    let _ = writeln!(
        text,
        "bundle     schema {}, written by fornax {} with LLVM {}, content {}",
        manifest.schema,
        manifest.producer.fornax,
        manifest.producer.llvm,
        bundle.content_hash()
    );
    let _ = writeln!(text, "precision  {}, rewrites {}", manifest.precision, manifest.rewrites);
    for dim in &manifest.signature.dims {
        let (name, range) = (&dim.name, dim.range);
        let _ = writeln!(
            text,
            "dim        {name}: {}..={}, a multiple of {}",
            range.min, range.max, range.divisor
        );
    }
    for port in &manifest.signature.inputs {
        let _ = writeln!(text, "input      {}", port_text(port));
    }
    for port in &manifest.signature.outputs {
        let _ = writeln!(text, "output     {}", port_text(port));
    }
    let embedded = manifest.weights.iter().filter(|weight| weight.embedded).count();
    let bytes =
        |weight: &WeightDecl| weight.shape.iter().product::<u64>() * weight.dtype.size() as u64;
    let _ = writeln!(
        text,
        "weights    {} ({embedded} embedded), {} bytes",
        manifest.weights.len(),
        manifest.weights.iter().map(bytes).sum::<u64>()
    );
}

fn port_text(port: &Port) -> String {
    format!("{}: {}{}", port.name, port.dtype, shape_text(&port.shape))
}

fn shape_text(shape: &[Dim]) -> String {
    let sizes: Vec<String> = shape.iter().map(Dim::to_string).collect();
    format!("[{}]", sizes.join(","))
}

fn describe_plan(plan: &TargetPlan, parts: Parts, text: &mut String) {
    let _ = writeln!(
        text,
        "target     {}: {} kernels in {} regions, scratch {} bytes, prepared {} bytes",
        plan.target,
        plan.kernels.len(),
        plan.regions.len(),
        plan.scratch_bytes,
        plan.prepared_bytes
    );
    for (phase, steps) in [("prepare", &plan.prepare), ("run", &plan.run)] {
        for step in steps {
            describe_step(plan, phase, step, parts, text);
        }
    }
    if parts.memory {
        for buffer in &plan.buffers {
            let _ = writeln!(text, "  buffer   {}", buffer_text(buffer));
        }
    }
}

fn describe_step(plan: &TargetPlan, phase: &str, step: &Step, parts: Parts, text: &mut String) {
    match step {
        Step::Launch(launch) => {
            let kernel = &plan.kernels[launch.kernel];
            let region = &plan.regions[kernel.region];
            let _ = writeln!(
                text,
                "  {phase:<8} {:<5} {:<12} {}{}",
                region.name,
                region.class,
                region.schedule,
                match region.precision {
                    Precision::Ieee => String::new(),
                    other => format!(", {other}"),
                }
            );
            for op in &region.ops {
                let _ = writeln!(text, "             {:<16} {}", op.op, op.origins.join(", "));
            }
            if parts.kernels {
                let _ = writeln!(text, "             {}", launch_text(kernel, launch));
            }
        }
        Step::Copy { from, to } => {
            let name = |buffer: &usize| &plan.buffers[*buffer].name;
            let _ = writeln!(text, "  {phase:<8} copy {} to {}", name(from), name(to));
        }
        Step::Choice { name, selected, alternatives } => {
            let _ = writeln!(
                text,
                "  {phase:<8} choice {name}: {} of {}",
                alternatives[*selected].name,
                alternatives.len()
            );
            for step in &alternatives[*selected].steps {
                describe_step(plan, phase, step, parts, text);
            }
        }
    }
}

fn launch_text(kernel: &Kernel, launch: &Launch) -> String {
    let grid: Vec<String> = launch.grid.iter().map(Dim::to_string).collect();
    let per_byte = match (kernel.flops.eval(&Dims::new()), kernel.bytes.eval(&Dims::new())) {
        (Ok(flops), Ok(bytes)) if bytes > 0 => {
            format!(", {:.2} flop/byte", flops as f64 / bytes as f64)
        }
        _ => String::new(),
    };
    format!(
        "kernel {} grid ({}) block {} shared {} moves {} bytes, {} flop{per_byte}",
        kernel.name,
        grid.join(", "),
        kernel.block[0],
        kernel.dynamic_shared_bytes,
        kernel.bytes,
        kernel.flops
    )
}

fn buffer_text(buffer: &Buffer) -> String {
    let place = match &buffer.kind {
        BufferKind::Input { index } => format!("input {index}"),
        BufferKind::Output { index } => format!("output {index}"),
        BufferKind::Weight { index } => format!("weight {index}"),
        BufferKind::Prepared { offset } => format!("prepared at {offset}"),
        BufferKind::Counters { offset } => format!("counters at {offset}"),
        BufferKind::Scratch { offset } => format!("scratch at {offset}"),
    };
    format!("{:<32} {}{} {place}", buffer.name, buffer.dtype, shape_text(&buffer.shape))
}
