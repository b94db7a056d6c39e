//! Loading and running a hand-made bundle, on the emulator and on a GPU where there is one.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // helper functions outside of `#[test]`

use std::collections::BTreeMap;
use std::sync::Arc;

use fornax_bundle::manifest::{Manifest, Step};
use fornax_bundle::{Bundle, BundleParts, DType, Dims, Tensor};
use fornax_runtime::cuda::CudaDevice;
use fornax_runtime::device::{Buffer, Stream};
use fornax_runtime::emulator::Emulator;
use fornax_runtime::error::FaultKind;
use fornax_runtime::profile::{host_cost, profile};
use fornax_runtime::{
    Device, DeviceTensor, Error, Launched, LoadOptions, LoadedBundle, Memory, Observer,
};
use serde_json::{Value, json};

const PTX: &str = include_str!("ptx/session.ptx");
const ENTRY: &str = "ptx/sm_80/session.ptx";
const WEIGHT: [f32; 3] = [1.0, -2.0, 0.5];

fn devices() -> Vec<Arc<dyn Device>> {
    let mut devices: Vec<Arc<dyn Device>> = vec![Arc::new(Emulator::default())];
    match CudaDevice::open(0) {
        Ok(device) => devices.push(Arc::new(device)),
        Err(error) => println!("skipped on CUDA: {error}"),
    }
    devices
}

fn emulator() -> Arc<dyn Device> {
    Arc::new(Emulator::default())
}

/// `y = x * (2 w) + x` and `z = x * (2 w)` for `x: f32[N, 3]`; the prepare program doubles `w`. The sum goes
/// through a copy in one alternative and straight to the output in the other.
fn manifest(embedded: bool) -> Value {
    let rows = json!(["N", 3]);
    let pointer = |name: &str, written: bool| json!({"kind": "pointer", "name": name, "dtype": "f32", "written": written});
    let scalar = |dtype: &str| json!({"kind": "scalar", "name": "n", "dtype": dtype});
    let kernel = |name: &str, region: usize, params: Value| {
        json!({"name": name, "ptx": ENTRY, "block": [64, 1, 1], "cluster": [1, 1, 1],
               "dynamic_shared_bytes": 0, "params": params, "region": region,
               "bytes": "36*N", "flops": "3*N"})
    };
    let region = |name: &str, node: &str, reads: Value, writes: Value| {
        json!({"name": name, "class": "pointwise", "schedule": "",
               "ops": [{"op": "op", "origins": [node]}], "reads": reads, "writes": writes})
    };
    let buffer = |name: &str, shape: &Value, mut kind: Value| {
        kind["name"] = name.into();
        kind["dtype"] = "f32".into();
        kind["shape"] = shape.clone();
        kind
    };
    let args = |buffers: &[usize], n: &str| {
        let buffers = buffers.iter().map(|buffer| json!({"arg": "buffer", "buffer": buffer}));
        buffers.chain([json!({"arg": "scalar", "value": n})]).collect::<Vec<_>>()
    };
    let launch = |kernel: usize, args: Vec<Value>| {
        json!({"step": "launch", "kernel": kernel, "grid": ["floordiv(3*N + 63, 64)", 1, 1],
               "args": args})
    };
    json!({
        "schema": 1,
        "producer": {"fornax": "0.1.0", "llvm": "none"},
        "model": "session",
        "signature": {
            "dims": [{"name": "N", "range": {"min": 0, "max": 4096, "divisor": 1}}],
            "inputs": [{"name": "x", "dtype": "f32", "shape": rows}],
            "outputs": [{"name": "y", "dtype": "f32", "shape": rows},
                        {"name": "z", "dtype": "f32", "shape": rows}],
        },
        "precision": "ieee",
        "rewrites": "real",
        "weights": [{"name": "w", "dtype": "f32", "shape": [3], "embedded": embedded}],
        "targets": [{
            "target": "sm_80",
            "kernels": [
                kernel("twice", 0, json!([pointer("src", false), pointer("dst", true), scalar("i32")])),
                kernel("mul_row", 1, json!([pointer("x", false), pointer("p", false),
                                            pointer("y", true), scalar("i64")])),
                kernel("add", 2, json!([pointer("a", false), pointer("b", false),
                                        pointer("y", true), scalar("i32")])),
            ],
            "regions": [region("r0", "double", json!([1]), json!([2])),
                        region("r1", "scale", json!([0, 2]), json!([3])),
                        region("r2", "residual", json!([0, 3]), json!([4]))],
            "buffers": [
                buffer("x", &rows, json!({"kind": "input", "index": 0})),
                buffer("w", &json!([3]), json!({"kind": "weight", "index": 0})),
                buffer("p", &json!([3]), json!({"kind": "prepared", "offset": 256})),
                buffer("t", &rows, json!({"kind": "scratch", "offset": 0})),
                buffer("y", &rows, json!({"kind": "output", "index": 0})),
                buffer("z", &rows, json!({"kind": "output", "index": 1})),
                buffer("s", &rows, json!({"kind": "scratch", "offset": "256*floordiv(12*N + 255, 256)"})),
            ],
            "scratch_bytes": "512*floordiv(12*N + 255, 256)",
            "prepared_bytes": 512,
            "prepare": [{"step": "launch", "kernel": 0, "grid": [1, 1, 1], "args": args(&[1, 2], "3")}],
            "run": [
                launch(1, args(&[0, 2, 3], "3*N")),
                {"step": "copy", "from": 3, "to": 5},
                {"step": "choice", "name": "sum", "selected": 0, "alternatives": [
                    {"name": "copied", "steps": [launch(2, args(&[0, 3, 6], "3*N")),
                                                 {"step": "copy", "from": 6, "to": 4}]},
                    {"name": "direct", "steps": [launch(2, args(&[0, 3, 4], "3*N"))]},
                ]},
            ],
        }],
    })
}

fn bundle_of(manifest: Value, ptx: &str) -> Bundle {
    let manifest: Manifest = serde_json::from_value(manifest).unwrap();
    let embedded = manifest.weights[0].embedded;
    let mut parts = BundleParts::new(manifest, "graph");
    parts.ptx.insert(ENTRY.to_owned(), ptx.to_owned());
    if embedded {
        parts.weights.insert("w".to_owned(), Tensor::from_f32(&[3], &WEIGHT));
    }
    Bundle::from_bytes(parts.to_bytes().unwrap()).unwrap()
}

fn load(device: &Arc<dyn Device>, bundle: &Bundle) -> LoadedBundle {
    LoadedBundle::load(device.clone(), bundle, LoadOptions::default()).unwrap()
}

fn input(n_rows: usize, seed: f32) -> Tensor {
    let values: Vec<f32> = (0..3 * n_rows).map(|i| seed + i as f32 / 8.0).collect();
    Tensor::from_f32(&[n_rows, 3], &values)
}

/// What the model computes; exact in f32 for these inputs.
fn expected(x: &Tensor, w: [f32; 3]) -> Vec<Tensor> {
    let of = |f: &dyn Fn(f64, f64) -> f64| {
        let values = x.to_f64();
        let pairs = values.iter().enumerate().map(|(i, &x)| (x, 2.0 * f64::from(w[i % 3])));
        let values: Vec<f32> = pairs.map(|(x, p)| f(x, p) as f32).collect();
        Tensor::from_f32(x.shape(), &values)
    };
    vec![of(&|x, p| x * p + x), of(&|x, p| x * p)]
}

#[test]
fn one_bundle_runs_at_all_sizes() {
    let bundle = bundle_of(manifest(true), PTX);
    for device in devices() {
        for memory in [Memory::Planned, Memory::Separate] {
            let options = LoadOptions { memory, ..LoadOptions::default() };
            let loaded = LoadedBundle::load(device.clone(), &bundle, options).unwrap();
            for n_rows in [21, 1, 0, 64, 22, 1000, 3] {
                let x = input(n_rows, 1.0);
                assert_eq!(loaded.run(std::slice::from_ref(&x)).unwrap(), expected(&x, WEIGHT));
            }
        }
    }
}

#[test]
fn the_selected_alternative_runs() {
    struct Names(Vec<String>, Vec<[u32; 3]>);
    impl Observer for Names {
        fn after_launch(&mut self, launch: &Launched<'_>) -> Result<(), Error> {
            self.0.push(launch.declaration().name.clone());
            self.1.push(launch.config.grid);
            // What the kernel has just written can be read back: `t`, or the sum.
            let written = launch.bundle().plan().regions[launch.kernel].writes[0];
            if launch.kernel == 1 {
                let x = launch.read(0)?;
                assert_eq!(launch.read(written)?, expected(&x, WEIGHT)[1]);
            }
            assert_eq!(launch.dims()["N"], 50);
            Ok(())
        }
    }
    for device in devices() {
        for selected in [0, 1] {
            let mut manifest = manifest(true);
            manifest["targets"][0]["run"][2]["selected"] = selected.into();
            let loaded = load(&device, &bundle_of(manifest, PTX));
            let x = input(50, 2.0);
            let mut names = Names(Vec::new(), Vec::new());
            let outputs = loaded.run_observed(std::slice::from_ref(&x), &mut names).unwrap();
            assert_eq!(outputs, expected(&x, WEIGHT));
            assert_eq!(names.0, ["mul_row", "add"]);
            assert_eq!(names.1, [[3, 1, 1]; 2]);
        }
    }
}

#[test]
fn an_observer_can_stop_the_run() {
    struct Stop;
    impl Observer for Stop {
        fn before_launch(&mut self, launch: &Launched<'_>) -> Result<(), Error> {
            let what = launch.declaration().name.clone();
            Err(Error::Plan { what, reason: "stop".to_owned() })
        }
    }
    let loaded = load(&emulator(), &bundle_of(manifest(true), PTX));
    let error = loaded.run_observed(&[input(2, 0.0)], &mut Stop).unwrap_err();
    assert!(error.to_string().ends_with("mul_row: stop"), "{error}");
}

#[test]
fn weights_are_bound_by_name_and_refreshed() {
    let bundle = bundle_of(manifest(false), PTX);
    let weight = |values: &[f32]| {
        BTreeMap::from([("w".to_owned(), Tensor::from_f32(&[values.len()], values))])
    };
    for device in devices() {
        let load_with = |weights| {
            let options = LoadOptions { weights, ..LoadOptions::default() };
            LoadedBundle::load(device.clone(), &bundle, options)
        };
        let error = |weights| load_with(weights).err().unwrap().to_string();
        assert_eq!(
            error(BTreeMap::new()),
            "the bundle leaves these weights to be given at load: w"
        );
        assert_eq!(error(weight(&[0.0; 4])), "weight `w`: it is f32[3], not f32[4]");
        let unknown = BTreeMap::from([("v".to_owned(), input(1, 0.0))]);
        assert_eq!(error(unknown), "weight `v`: the model has no weight of this name");

        let loaded = load_with(weight(&WEIGHT)).unwrap();
        let x = input(7, 1.0);
        let run = || loaded.run(std::slice::from_ref(&x)).unwrap();
        assert_eq!(run(), expected(&x, WEIGHT));
        loaded.refresh(&weight(&[4.0, 5.0, 6.0])).unwrap();
        assert_eq!(run(), expected(&x, [4.0, 5.0, 6.0]));
        assert!(loaded.refresh(&weight(&[1.0])).is_err());
        assert_eq!(run(), expected(&x, [4.0, 5.0, 6.0]), "a refused refresh changes nothing");
    }
    let embedded = load(&emulator(), &bundle_of(manifest(true), PTX));
    let error = embedded.refresh(&weight(&WEIGHT)).unwrap_err().to_string();
    assert!(error.contains("it is embedded in the bundle"), "{error}");
}

#[test]
fn weights_on_the_device_are_used_where_they_are() {
    let bundle = bundle_of(manifest(false), PTX);
    for device in devices() {
        let values = |values: [f32; 3]| Tensor::from_f32(&[3], &values);
        let memory = Buffer::from_bytes(device.clone(), values(WEIGHT).bytes()).unwrap();
        let load_at = |address| {
            let tensor = DeviceTensor { dtype: DType::F32, shape: vec![3], address };
            let device_weights = BTreeMap::from([("w".to_owned(), tensor)]);
            let options = LoadOptions { device_weights, ..LoadOptions::default() };
            LoadedBundle::load(device.clone(), &bundle, options)
        };
        let odd = load_at(memory.address() + 4).err().unwrap().to_string();
        assert!(odd.ends_with("is not a multiple of 16"), "{odd}");

        let loaded = load_at(memory.address()).unwrap();
        assert_eq!(loaded.memory_use().weight_bytes, 0);
        assert_eq!(loaded.memory_use().device_weight_bytes, 12);
        let x = input(7, 1.0);
        let run = || loaded.run(std::slice::from_ref(&x)).unwrap();
        assert_eq!(run(), expected(&x, WEIGHT));
        let new = values([4.0, 5.0, 6.0]);
        device.copy_to_device(memory.address(), new.bytes(), Stream::DEFAULT).unwrap();
        loaded.refresh(&BTreeMap::new()).unwrap();
        assert_eq!(run(), expected(&x, [4.0, 5.0, 6.0]));
        let error = loaded.refresh(&BTreeMap::from([("w".to_owned(), new)])).unwrap_err();
        assert!(error.to_string().contains("bound to memory of the device"), "{error}");
    }
}

#[test]
fn a_sized_run_takes_the_callers_scratch_memory() {
    for device in devices() {
        let bundle = bundle_of(manifest(true), PTX);
        let (loaded, other) = (load(&device, &bundle), load(&device, &bundle));
        let x = input(21, 1.0);
        let types = [(x.dtype(), x.shape())];
        let run = loaded.size_run(&types).unwrap();
        let outputs: Vec<_> = expected(&x, WEIGHT);
        let shapes: Vec<_> = outputs.iter().map(|y| (y.dtype(), y.shape().to_vec())).collect();
        assert_eq!(run.outputs(), shapes);
        assert_eq!(loaded.launched_kernels(), [1, 2]);
        assert!(run.scratch_bytes() > 0);
        let memory = |n_bytes| Buffer::new(device.clone(), n_bytes).unwrap();
        let given = Buffer::from_bytes(device.clone(), x.bytes()).unwrap();
        let results: Vec<_> = outputs.iter().map(|y| memory(y.bytes().len() as u64)).collect();
        let scratch = memory(run.scratch_bytes());
        let addresses: Vec<_> = results.iter().map(Buffer::address).collect();
        let submit = |loaded: &LoadedBundle, scratch| {
            loaded.run_sized(&run, &[given.address()], &addresses, scratch, Stream::DEFAULT)
        };
        submit(&loaded, scratch.address()).unwrap();
        for (result, output) in results.iter().zip(&outputs) {
            assert_eq!(result.to_bytes(Stream::DEFAULT).unwrap(), output.bytes().to_vec());
        }
        assert!(submit(&loaded, scratch.address() + 8).is_err());
        let foreign = submit(&other, scratch.address()).unwrap_err();
        assert_eq!(foreign.to_string(), "the sizes were evaluated for another loaded bundle");
    }
}

#[test]
fn several_threads_run_one_bundle() {
    for device in devices() {
        let loaded = load(&device, &bundle_of(manifest(true), PTX));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let loaded = &loaded;
                scope.spawn(move || {
                    for round in 0..8 {
                        let x = input(1 + 10 * round + thread, thread as f32);
                        let outputs = loaded.run(std::slice::from_ref(&x)).unwrap();
                        assert_eq!(outputs, expected(&x, WEIGHT));
                    }
                });
            }
        });
    }
}

#[test]
fn device_memory_is_used_in_place_and_through_graphs() {
    for device in devices() {
        let loaded = load(&device, &bundle_of(manifest(true), PTX));
        let stream = Stream::DEFAULT;
        for n_rows in [5, 100] {
            let x = input(n_rows, 3.0);
            let given = Buffer::from_bytes(device.clone(), x.bytes()).unwrap();
            let outputs: Vec<_> =
                (0..2).map(|_| Buffer::new(device.clone(), given.n_bytes()).unwrap()).collect();
            let results: Vec<u64> = outputs.iter().map(Buffer::address).collect();
            let dims = Dims::from([("N".into(), n_rows as i64)]);
            let check = |x: &Tensor| {
                for (output, expected) in outputs.iter().zip(expected(x, WEIGHT)) {
                    assert_eq!(output.to_bytes(stream).unwrap(), expected.bytes().to_vec());
                    device.fill(output.address(), 0, output.n_bytes(), stream).unwrap();
                }
            };
            loaded.run_device(&[given.address()], &results, &dims, stream).unwrap();
            check(&x);
            for seed in [4.0, 5.0, 6.0] {
                // The second and third time launch the recorded graph on new contents.
                let x = input(n_rows, seed);
                device.copy_to_device(given.address(), x.bytes(), stream).unwrap();
                loaded.run_graph(&[given.address()], &results, &dims, stream).unwrap();
                check(&x);
            }
            let error = |inputs: &[u64], dims: &Dims| {
                loaded.run_device(inputs, &results, dims, stream).unwrap_err().to_string()
            };
            assert_eq!(error(&[], &dims), "the model has 1 inputs, not 0");
            let odd = error(&[given.address() + 4], &dims);
            assert!(odd.ends_with("of input `x` is not a multiple of 16"), "{odd}");
            let large = Dims::from([("N".into(), 5000)]);
            assert_eq!(
                error(&[given.address()], &large),
                "dimension `N` is 5000, but the bundle was compiled for 0..=4096"
            );
        }
    }
}

#[test]
fn inputs_are_checked_against_the_signature() {
    let loaded = load(&emulator(), &bundle_of(manifest(true), PTX));
    let error = |inputs: &[Tensor]| loaded.run(inputs).unwrap_err().to_string();
    assert_eq!(error(&[]), "the model takes 1 inputs (x), not 0");
    assert_eq!(
        error(&[Tensor::from_f32(&[2, 4], &[0.0; 8])]),
        "input `x` has shape [2, 4], the model takes [N, 3]: dimension 1 must be 3"
    );
    assert_eq!(error(&[Tensor::from_i64(&[1, 3], &[0; 3])]), "input `x` must be f32, not i64");
}

#[test]
fn a_device_that_no_plan_fits_is_named() {
    let mut for_hopper = manifest(true);
    for_hopper["targets"][0]["target"] = "sm_100a".into();
    let load = |manifest, target: Option<&str>| {
        let options = LoadOptions { target: target.map(str::to_owned), ..LoadOptions::default() };
        LoadedBundle::load(emulator(), &bundle_of(manifest, PTX), options)
    };
    let error = load(for_hopper, None).err().unwrap().to_string();
    assert!(error.starts_with("the bundle has code for sm_100a; "), "{error}");
    assert!(error.ends_with("has compute capability 9.0"), "{error}");
    assert!(load(manifest(true), Some("sm_80")).is_ok());
    let error = load(manifest(true), Some("sm_90a")).err().unwrap().to_string();
    assert!(error.contains("of which sm_90a was asked for"), "{error}");
}

#[test]
fn bad_modules_are_named() {
    for device in devices() {
        let load = |ptx: &str| {
            let bundle = bundle_of(manifest(true), ptx);
            LoadedBundle::load(device.clone(), &bundle, LoadOptions::default()).err().unwrap()
        };
        let error = load(&PTX.replace("add.rn.f32      %f2", "nonsense.f32    %f2")).to_string();
        assert!(error.starts_with("ptx/sm_80/session.ptx: "), "{error}");
        assert!(error.contains("line 27"), "the line is named: {error}");
        let error = load(&PTX.replace(".entry twice(", ".entry thrice(")).to_string();
        assert!(error.contains("no kernel `twice`; it has: thrice, mul_row, add"), "{error}");
    }
}

#[test]
fn faults_name_region_and_nodes() {
    // `add` reads one element too far.
    let faulty = PTX.replace(
        "ld.global.f32   %f2, [%rd9];\n    add",
        "ld.global.f32   %f2, [%rd9+4];\n    add",
    );
    assert_ne!(faulty, PTX);
    let bundle = bundle_of(manifest(true), &faulty);
    let options = LoadOptions { memory: Memory::Separate, ..LoadOptions::default() };
    let loaded = LoadedBundle::load(emulator(), &bundle, options).unwrap();
    let error = loaded.run(&[input(21, 0.0)]).unwrap_err();
    assert_eq!(error.fault().unwrap().kind, FaultKind::OutOfBounds);
    assert_eq!(error.fault().unwrap().thread, [62, 0, 0]);
    let text = error.to_string();
    assert!(text.ends_with("in region r2 (kernel `add`), which computes: residual"), "{text}");
}

#[test]
fn what_a_dead_buffer_held_is_not_read() {
    // `mul_row` leaves the last element of `t` unwritten. The first run's memory is fresh, the second's
    // comes from the pool and holds the first's values.
    let faulty = PTX.replace(
        "ld.param.u64    %rd4, [mul_n];",
        "ld.param.u64    %rd4, [mul_n];\n    sub.s64         %rd4, %rd4, 1;",
    );
    assert_ne!(faulty, PTX);
    let mut manifest = manifest(true);
    let steps = manifest["targets"][0]["run"].as_array_mut().unwrap();
    // The copy to `z` may move what is uninitialised; only a kernel's read is a fault.
    steps.swap(1, 2);
    let loaded = load(&emulator(), &bundle_of(manifest, &faulty));
    for _ in 0..2 {
        let error = loaded.run(&[input(10, 1.0)]).unwrap_err();
        assert_eq!(
            error.fault().map(|fault| fault.kind),
            Some(FaultKind::Uninitialised),
            "{error}"
        );
    }
    // The right kernels leave nothing of the sort behind.
    let mut whole = bundle_of(self::manifest(true), PTX).into_parts();
    whole.graph.clear();
    let loaded = load(&emulator(), &Bundle::from_bytes(whole.to_bytes().unwrap()).unwrap());
    for _ in 0..2 {
        loaded.run(&[input(10, 1.0)]).unwrap();
    }
}

#[test]
fn profiles_list_the_launches() {
    for device in devices() {
        let loaded = load(&device, &bundle_of(manifest(true), PTX));
        let profile = profile(&loaded, &[input(64, 0.0)], 1, 3).unwrap();
        let names: Vec<_> = profile.launches.iter().map(|launch| launch.name.as_str()).collect();
        assert_eq!(names, ["mul_row", "add"]);
        assert_eq!((profile.launches[0].bytes, profile.launches[0].flops), (36 * 64, 3 * 64));
        assert_eq!(profile.is_gpu_time, device.kind() == fornax_runtime::device::DeviceKind::Cuda);
        assert!(profile.launches.iter().all(|l| l.roofline_share.is_some() == profile.is_gpu_time));
        assert!(profile.total_ns() > 0.0);
        let cost = host_cost(&loaded, &[input(64, 0.0)], 200).unwrap();
        println!("{}: {cost:?}, {profile:#?}", device.name());
        assert!(cost.direct_ns > 0.0 && cost.graph_ns > 0.0);
    }
}

#[test]
fn steps_nest() {
    // A choice in a choice is flattened.
    let mut manifest = manifest(true);
    let choice = manifest["targets"][0]["run"][2].clone();
    manifest["targets"][0]["run"][2] = json!({"step": "choice", "name": "outer", "selected": 0,
        "alternatives": [{"name": "inner", "steps": [choice]}]});
    let bundle = bundle_of(manifest, PTX);
    assert!(matches!(bundle.manifest().targets[0].run[2], Step::Choice { .. }));
    let x = input(4, 1.0);
    let outputs = load(&emulator(), &bundle).run(std::slice::from_ref(&x)).unwrap();
    assert_eq!(outputs, expected(&x, WEIGHT));
}
