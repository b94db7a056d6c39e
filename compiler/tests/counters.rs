//! Kernels that count blocks, run after run: on one stream, on more streams than there are counters for, and
//! through graphs.

#![cfg(feature = "llvm")]
#![allow(clippy::unwrap_used, reason = "a failure of what is not tested here may panic")]
#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

use std::sync::Arc;

use fornax_bundle::{Bundle, Tensor};
use fornax_compiler::{CompileOptions, compile_graph};
use fornax_runtime::cuda::CudaDevice;
use fornax_runtime::device::{Buffer, Stream};
use fornax_runtime::{Device, Emulator, LoadOptions, LoadedBundle, Memory};

/// A mean that blocks share and the last one finishes.
const MEAN: &str = "graph @mean(%x: f32[66000]) -> (y: f32[]) {
  %0 = reduce_mean %x {axes = [0], keepdims = false} : f32[]
  return %0
}";

/// Rows that groups of blocks hold, which wait for one another twice.
const ROWS: &str = "graph @rows(%x: f32[N,66000]) dims(N: 1..4) -> (y: f32[N,66000]) {
  %0 = reduce_max %x {axes = [1], keepdims = true} : f32[N,1]
  %1 = broadcast %0 {shape = [N,66000]} : f32[N,66000]
  %2 = sub %x, %1 : f32[N,66000]
  %3 = abs %2 : f32[N,66000]
  %4 = reduce_mean %3 {axes = [1], keepdims = true} : f32[N,1]
  %5 = broadcast %4 {shape = [N,66000]} : f32[N,66000]
  %6 = div %2, %5 : f32[N,66000]
  return %6
}";

fn devices() -> Vec<Arc<dyn Device>> {
    let mut devices: Vec<Arc<dyn Device>> = vec![Arc::new(Emulator::default())];
    match CudaDevice::open(0) {
        Ok(device) => devices.push(Arc::new(device)),
        Err(error) => println!("skipped on CUDA: {error}"),
    }
    devices
}

/// A compiled graph, which is one kernel for a target.
fn bundle(text: &str) -> Bundle {
    let graph = fornax_ir::text::parse_graph(text).unwrap();
    let compiled = compile_graph(graph, &CompileOptions::default(), &mut |_, _, _| {}).unwrap();
    for target in &compiled.parts.manifest.targets {
        assert_eq!(target.kernels.len(), 1, "{:?}", target.kernels);
        assert!(target.counter_bytes.as_const().is_some_and(|bytes| bytes > 0));
    }
    Bundle::from_bytes(compiled.parts.to_bytes().unwrap()).unwrap()
}

fn load(device: &Arc<dyn Device>, bundle: &Bundle, memory: Memory) -> LoadedBundle {
    let options = LoadOptions { memory, ..LoadOptions::default() };
    LoadedBundle::load(device.clone(), bundle, options).unwrap()
}

fn input(shape: &[usize], seed: usize) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((i * 7 + seed) % 33) as f32 / 16.0).collect();
    Tensor::from_f32(shape, &values)
}

fn mean(x: &Tensor) -> f64 {
    x.to_f64().iter().sum::<f64>() / x.to_f64().len() as f64
}

#[test]
fn each_run_counts_again() {
    let (means, rows) = (bundle(MEAN), bundle(ROWS));
    for device in devices() {
        for memory in [Memory::Planned, Memory::Separate] {
            let loaded = load(&device, &means, memory);
            for seed in 0..3 {
                let x = input(&[66000], seed);
                let y = loaded.run(std::slice::from_ref(&x)).unwrap()[0].to_f64()[0];
                assert!((y - mean(&x)).abs() < 1e-6, "{y} at {seed}");
            }
            // Fewer rows use some of the counters only.
            let loaded = load(&device, &rows, memory);
            for (seed, count) in [2, 1, 3, 3].into_iter().enumerate() {
                let x = input(&[count, 66000], seed);
                let y = loaded.run(std::slice::from_ref(&x)).unwrap()[0].to_f64();
                let most = 2.0;
                for (x, y) in x.to_f64().chunks(66000).zip(y.chunks(66000)) {
                    let scale = x.iter().map(|x| most - x).sum::<f64>() / x.len() as f64;
                    let error = x.iter().zip(y).map(|(x, y)| ((x - most) / scale - y).abs());
                    assert!(error.fold(0.0, f64::max) < 1e-5, "{seed}");
                }
            }
        }
    }
}

#[test]
fn streams_and_graphs_have_counters_of_their_own() {
    let bundle = bundle(MEAN);
    let x = input(&[66000], 5);
    for device in devices() {
        let loaded = load(&device, &bundle, Memory::Planned);
        let given = Buffer::from_bytes(device.clone(), x.bytes()).unwrap();
        let result = Buffer::new(device.clone(), 4).unwrap();
        let (inputs, outputs, dims) = ([given.address()], [result.address()], Default::default());
        let check = |what: &str| {
            let bytes = result.to_bytes(Stream::DEFAULT).unwrap();
            let y = f32::from_le_bytes(bytes.try_into().unwrap());
            assert!((f64::from(y) - mean(&x)).abs() < 1e-6, "{y} {what}");
        };
        for round in 0..2 {
            loaded.run_device(&inputs, &outputs, &dims, Stream::DEFAULT).unwrap();
            check("directly");
            loaded.run_graph(&inputs, &outputs, &dims, Stream::DEFAULT).unwrap();
            check("through a graph");
            let run = loaded.size_run(&[(x.dtype(), x.shape())]).unwrap();
            let scratch = Buffer::new(device.clone(), run.scratch_bytes()).unwrap();
            // On the emulator, a stream is a number. There are at most 256 sets of counters.
            let streams =
                if device.record_graph(&mut |_| Ok(())).unwrap().is_none() { 260 } else { 1 };
            for stream in (0..streams).skip(250 * round) {
                let stream = Stream(stream);
                loaded.run_sized(&run, &inputs, &outputs, scratch.address(), stream).unwrap();
                check(&format!("on {stream:?}"));
            }
        }
    }
}
