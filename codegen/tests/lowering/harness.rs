//! Builds a region, lowers and runs it with known and with symbolic sizes, and compares.

use std::collections::BTreeMap;
use std::sync::Arc;

use fornax_bundle::{DType, Dim, DimRange, Dims, Precision, Symbol, Tensor};
use fornax_codegen::kernel::{Param, verify};
use fornax_codegen::{Arg, Launch, LoweredRegion, Target, emit_ptx, lower};
use fornax_ir::interp::{Interpreter, Value};
use fornax_ir::plan::{Arena, Phase, Region, Schedule, ValueRef};
use fornax_ir::{Attrs, Graph, LocSet, NodeId, Type};
use fornax_runtime::compare::{Arithmetic, Tolerance, compare};
use fornax_runtime::device::{Buffer, Device, KernelArg, LaunchConfig, ModuleSource, Stream};
use fornax_runtime::emulator::Emulator;

/// A region body under construction.
pub struct Body {
    pub graph: Graph,
    /// Values of the sizes, by name; each input's sizes come from here.
    sizes: Dims,
    symbolic: bool,
}

/// What to fill an input with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fill {
    /// Small numbers of both signs.
    Signed,
    /// Whole numbers in `-3..=3`.
    Small,
    /// Indices, some of them out of range on both sides.
    Indices(i64),
}

impl Body {
    /// A size by name: a symbol in a symbolic body, else its value.
    pub fn size(&self, name: &str) -> Dim {
        if self.symbolic { Dim::symbol(name) } else { Dim::constant(self.sizes[name]) }
    }

    pub fn shape(&self, names: &[&str]) -> Vec<Dim> {
        names
            .iter()
            .map(|name| match name.parse::<i64>() {
                Ok(number) => Dim::constant(number),
                Err(_) => self.size(name),
            })
            .collect()
    }

    pub fn input(&mut self, dtype: DType, names: &[&str]) -> NodeId {
        let name = format!("in{}", self.graph.inputs().len());
        let ty = Type::new(dtype, self.shape(names));
        self.graph.input(&name, ty).unwrap()
    }

    pub fn add(&mut self, op: &str, attrs: Attrs, operands: &[NodeId]) -> NodeId {
        let types: Vec<String> =
            operands.iter().map(|&operand| self.graph.ty(operand).to_string()).collect();
        self.graph
            .add(op, attrs, operands, LocSet::none())
            .unwrap_or_else(|error| panic!("{op} of {types:?}: {error}"))
    }

    /// `x + 1`, which padding with zeros does not keep.
    pub fn plus_one(&mut self, x: NodeId) -> NodeId {
        let ty = self.graph.ty(x).clone();
        let one = self.graph.scalar(ty.dtype, 1.0);
        let one = self.add("broadcast", fornax_ir::attrs! { shape: ty.shape.to_vec() }, &[one]);
        self.add("add", Attrs::none(), &[x, one])
    }

    pub fn output(&mut self, value: NodeId) {
        let name = format!("out{}", self.graph.outputs().len());
        self.graph.output(name, value);
    }
}

/// A region to test.
pub struct Case<'c> {
    pub sizes: &'c [(&'c str, i64)],
    pub schedule: Schedule,
    pub fill: Fill,
    pub arithmetic: Arithmetic,
    pub body: &'c dyn Fn(&mut Body),
}

impl Case<'_> {
    /// The first result of a region of known sizes on given `f32` inputs.
    #[track_caller]
    pub fn run_on(
        make: &dyn Fn(&mut Body),
        schedule: Schedule,
        precision: Precision,
        inputs: &[&[f32]],
    ) -> Vec<f32> {
        Case::run_sized(make, schedule, precision, (&[], false), inputs)
    }

    /// As [`Case::run_on`], with sizes that are known or symbolic.
    #[track_caller]
    pub fn run_sized(
        make: &dyn Fn(&mut Body),
        schedule: Schedule,
        precision: Precision,
        (sizes, symbolic): (&[(&str, i64)], bool),
        inputs: &[&[f32]],
    ) -> Vec<f32> {
        let sizes: Dims = sizes.iter().map(|&(name, size)| (name.into(), size)).collect();
        let graph = Graph::new("region");
        let mut body = Body { graph, sizes: sizes.clone(), symbolic };
        make(&mut body);
        let body = body.graph;
        let range = DimRange { min: 0, max: 1 << 20, divisor: 1 };
        let dims = sizes.keys().map(|name| (name.clone(), range)).collect();
        let region = region(body, precision, schedule);
        let lowered = lower(&region, &dims).unwrap_or_else(|error| panic!("{error}"));
        let tensors: Vec<Tensor> = region
            .body
            .inputs()
            .iter()
            .zip(inputs)
            .map(|(&id, values)| {
                let shape = region.body.ty(id).shape.iter().map(|dim| dim.eval(&sizes).unwrap());
                Tensor::from_f32(&shape.map(|size| size as usize).collect::<Vec<_>>(), values)
            })
            .collect();
        let results = run(&region.body, &lowered, &tensors, &sizes);
        results[0].to_f64().into_iter().map(|value| value as f32).collect()
    }

    /// Runs with known sizes and with symbolic ones.
    #[track_caller]
    pub fn check(&self) {
        self.check_at(Precision::Ieee);
    }

    /// As [`Case::check`], with contractions of a precision.
    #[track_caller]
    pub fn check_at(&self, precision: Precision) {
        const NARROW: i64 = 4096;
        self.check_with(precision, false, NARROW, 1);
        if !self.sizes.is_empty() {
            self.check_with(precision, true, NARROW, 1);
            let divisor = self.sizes.iter().fold(16, |divisor, &(_, size)| gcd(divisor, size));
            if divisor > 1 {
                self.check_with(precision, true, NARROW, divisor);
            }
        }
    }

    /// Runs with sizes that may be as large as any, so that 32-bit indices are too narrow.
    #[track_caller]
    pub fn check_wide(&self) {
        self.check_wide_at(Precision::Ieee);
    }

    /// As [`Case::check_wide`], with contractions of a precision.
    #[track_caller]
    pub fn check_wide_at(&self, precision: Precision) {
        self.check_with(precision, true, DimRange::ANY.max, 1);
    }

    /// The text forms of the region's kernels, of known sizes.
    #[track_caller]
    pub fn kernels(&self, precision: Precision) -> Vec<String> {
        let sizes: Dims = self.sizes.iter().map(|&(name, size)| (name.into(), size)).collect();
        let mut body = Body { graph: Graph::new("region"), sizes, symbolic: false };
        (self.body)(&mut body);
        let region = region(body.graph, precision, self.schedule.clone());
        let lowered = lower(&region, &BTreeMap::new()).unwrap_or_else(|error| panic!("{error}"));
        lowered.kernels.iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn check_with(&self, precision: Precision, symbolic: bool, max: i64, divisor: i64) {
        let sizes: Dims = self.sizes.iter().map(|&(name, size)| (name.into(), size)).collect();
        let mut body = Body { graph: Graph::new("region"), sizes: sizes.clone(), symbolic };
        (self.body)(&mut body);
        let range = DimRange { min: 0, max: max / divisor * divisor, divisor };
        let dims: BTreeMap<Symbol, DimRange> =
            sizes.keys().map(|name| (name.clone(), range)).collect();
        let region = region(body.graph, precision, self.schedule.clone());
        let lowered = lower(&region, &dims).unwrap_or_else(|error| panic!("{error}"));
        if symbolic && max == DimRange::ANY.max {
            let wide = |param: &Param| matches!(param, Param::Scalar { dtype: DType::I64, .. });
            let mut params = lowered.kernels.iter().flat_map(|kernel| &kernel.params);
            assert!(params.any(wide), "{:?}", lowered.kernels[0].params);
        }
        let inputs = inputs(&region.body, &sizes, self.fill);
        let actual = run(&region.body, &lowered, &inputs, &sizes);
        let context = format!(
            "{} {:?} symbolic {symbolic} max {max} divisor {divisor} {:?} {precision}",
            lowered.kernels[0].name, sizes, self.schedule
        );
        self.compare(&region, &inputs, &actual, &context);
    }

    #[track_caller]
    fn compare(&self, region: &Region, inputs: &[Tensor], actual: &[Tensor], context: &str) {
        let body = &region.body;
        let interpreter = Interpreter::<f64>::new(body, inputs, &BTreeMap::new())
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        let expected: Vec<Value<f64>> = interpreter.outputs().unwrap();
        for ((output, expected), actual) in body.outputs().iter().zip(expected).zip(actual) {
            let dtype = body.ty(output.value).dtype;
            let reference = match expected {
                Value::Float(_) => expected.to_tensor(DType::F64),
                Value::Int(_) => expected.to_tensor(dtype),
            };
            let tolerance = Tolerance::of(self.arithmetic, dtype)
                .with_factors(self.arithmetic, region.precision);
            let comparison = compare(actual, &reference, tolerance).unwrap();
            assert!(comparison.passed, "{context}: {}: {comparison:#?}", output.name);
        }
    }
}

/// A region of the run that computes a body from as many inputs.
pub fn region(body: Graph, precision: Precision, schedule: Schedule) -> Region {
    Region {
        name: "r0".to_owned(),
        phase: Phase::Run,
        parts: BTreeMap::new(),
        operands: (0..body.inputs().len()).map(ValueRef::Input).collect(),
        body,
        precision,
        schedule,
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Deterministic inputs.
fn inputs(body: &Graph, sizes: &Dims, fill: Fill) -> Vec<Tensor> {
    let mut state = 7u64;
    let mut next = move |below: i64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 33) as i64) % below
    };
    let inputs = body.inputs().iter().map(|&id| {
        let ty = body.ty(id);
        let shape: Vec<usize> =
            ty.shape.iter().map(|dim| dim.eval(sizes).unwrap() as usize).collect();
        let count = shape.iter().product();
        let float = ty.dtype.is_float();
        let values: Vec<f64> = (0..count)
            .map(|_| match fill {
                Fill::Signed if float => (next(4001) - 2000) as f64 / 1000.0,
                Fill::Indices(size) if !float => (next(2 * size + 6) - size - 3) as f64,
                _ if ty.dtype == DType::Bool => next(2) as f64,
                _ if ty.dtype.is_unsigned_int() => next(7) as f64,
                _ => (next(7) - 3) as f64,
            })
            .collect();
        let value = fornax_ir::interp::Array::new(shape, values);
        if float {
            Value::Float(value).to_tensor(ty.dtype)
        } else {
            let data = value.data.iter().map(|&value| value as i64).collect();
            Value::<f64>::Int(fornax_ir::interp::Array::new(value.shape, data)).to_tensor(ty.dtype)
        }
    });
    inputs.collect()
}

/// Emits, loads and launches the kernels of a region.
#[track_caller]
pub fn run(body: &Graph, lowered: &LoweredRegion, inputs: &[Tensor], sizes: &Dims) -> Vec<Tensor> {
    let device: Arc<dyn Device> = Arc::new(Emulator::default());
    let buffer = |bytes: u64| Buffer::new(device.clone(), bytes).unwrap();
    let operands: Vec<Buffer> = inputs
        .iter()
        .map(|tensor| Buffer::from_bytes(device.clone(), tensor.bytes()).unwrap())
        .collect();
    let shapes: Vec<Vec<usize>> = body
        .outputs()
        .iter()
        .map(|output| {
            let shape = &body.ty(output.value).shape;
            shape.iter().map(|dim| dim.eval(sizes).unwrap() as usize).collect()
        })
        .collect();
    let dtypes: Vec<DType> =
        body.outputs().iter().map(|output| body.ty(output.value).dtype).collect();
    let outputs: Vec<Buffer> = shapes
        .iter()
        .zip(&dtypes)
        .map(|(shape, dtype)| buffer((shape.iter().product::<usize>() * dtype.size()) as u64))
        .collect();
    let workspaces: Vec<Buffer> = lowered
        .workspaces
        .iter()
        .map(|w| {
            let bytes = w.elements.eval(sizes).unwrap() as u64 * w.dtype.size() as u64;
            match w.arena {
                Arena::Counters => {
                    Buffer::from_bytes(device.clone(), &vec![0; bytes as usize]).unwrap()
                }
                Arena::Phase | Arena::Prepared => buffer(bytes),
            }
        })
        .collect();
    let run = || -> Vec<Tensor> {
        for launch in &lowered.launches {
            launch_one(&device, lowered, launch, (&operands, &outputs, &workspaces), sizes);
        }
        let read =
            outputs.iter().zip(shapes.iter().zip(&dtypes)).map(|(output, (shape, dtype))| {
                let bytes = output.to_bytes(Stream::DEFAULT).unwrap();
                Tensor::new(*dtype, shape.clone(), bytes).unwrap()
            });
        read.collect()
    };
    let results = run();
    // Counters must be left as they are needed again: for the second run, and, since some of them are back at
    // zero only then, for the third one.
    if lowered.workspaces.iter().any(|w| w.arena == Arena::Counters) {
        for _ in 0..2 {
            assert_eq!(run(), results, "{}: another run differs", lowered.kernels[0].name);
        }
    }
    results
}

#[track_caller]
fn launch_one(
    device: &Arc<dyn Device>,
    lowered: &LoweredRegion,
    launch: &Launch,
    (operands, outputs, workspaces): (&[Buffer], &[Buffer], &[Buffer]),
    sizes: &Dims,
) {
    let kernel = &lowered.kernels[launch.kernel];
    assert_eq!(verify(kernel), Vec::<String>::new(), "{}", kernel.name);
    let target = if kernel.to_string().contains("wgmma") { Target::Sm90a } else { Target::Sm80 };
    let module = emit_ptx(kernel, target).unwrap_or_else(|error| panic!("{error}"));
    let grid = launch.grid.each_ref().map(|dim| u32::try_from(dim.eval(sizes).unwrap()).unwrap());
    if grid.contains(&0) {
        return;
    }
    assert!(launch.bytes.eval(sizes).is_ok() && launch.flops.eval(sizes).is_ok());
    let loaded = device.load_module(ModuleSource::ptx(&module.text)).unwrap();
    let entry = device.kernel(&loaded, &module.entry).unwrap();
    let args: Vec<KernelArg> = launch
        .args
        .iter()
        .zip(&kernel.params)
        .map(|(arg, param)| match arg {
            Arg::Operand(index) => KernelArg::Pointer(operands[*index].address()),
            Arg::Output(index) => KernelArg::Pointer(outputs[*index].address()),
            Arg::Workspace(index) => KernelArg::Pointer(workspaces[*index].address()),
            Arg::Scalar(dim) => match (dim.eval(sizes).unwrap(), param.dtype()) {
                (value, DType::I64) => KernelArg::I64(value),
                (value, _) => KernelArg::I32(i32::try_from(value).unwrap()),
            },
        })
        .collect();
    let config = LaunchConfig {
        grid,
        block: [module.threads, 1, 1],
        shared_bytes: module.dynamic_shared_bytes,
        cluster: [1, 1, 1],
    };
    device
        .launch(&entry, &config, &args, Stream::DEFAULT)
        .unwrap_or_else(|error| panic!("{}: {error}\n{}", kernel.name, module.text));
}
