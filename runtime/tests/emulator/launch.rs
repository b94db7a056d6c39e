//! Launches: limits, arguments, handles.

use std::sync::Arc;

use fornax_runtime::device::{Device, DeviceKind, KernelArg, LaunchConfig, ModuleSource, Stream};
use fornax_runtime::{Emulator, EmulatorOptions, Error};

const TEXT: &str = ".version 8.0\n.target sm_80\n.address_size 64\n\
    .visible .entry one(.param .u64 a, .param .u32 b) .maxntid 128 { .shared .align 4 .b8 s[1024]; ret; }\n\
    .visible .entry two() .reqntid 32, 2 { ret; }\n";

fn refused(name: &str, config: LaunchConfig, args: &[KernelArg]) -> String {
    let device = Emulator::default();
    let module = device.load_module(ModuleSource::ptx(TEXT)).unwrap();
    let kernel = device.kernel(&module, name).unwrap();
    match device.launch(&kernel, &config, args, Stream::DEFAULT) {
        Err(Error::Launch { kernel, reason }) => format!("{kernel}: {reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn launches_are_checked() {
    let args = [KernelArg::Pointer(0), KernelArg::I32(0)];
    let linear = LaunchConfig::linear;
    assert!(refused("one", linear(1, 129), &args).contains(".maxntid"));
    assert!(refused("one", linear(0, 1), &args).contains("extent of 0"));
    assert!(refused("one", linear(1, 2048), &args).contains("1024 threads"));
    assert!(refused("one", linear(1, 32), &args[..1]).contains("1 arguments given, 2 needed"));
    let wide = [KernelArg::Pointer(0), KernelArg::I64(0)];
    assert!(refused("one", linear(1, 32), &wide).contains("argument 1 has 8 bytes"));
    let shared = LaunchConfig { shared_bytes: 232_000, ..linear(1, 32) };
    assert!(refused("one", shared, &args).contains("exceed 232448"));
    assert!(refused("two", linear(1, 64), &[]).contains(".reqntid"));
    let cluster = LaunchConfig { cluster: [2, 1, 1], ..linear(3, 32) };
    assert!(refused("one", cluster, &args).contains("clusters"));
}

#[test]
fn handles_are_checked() {
    let device = Emulator::default();
    assert_eq!((device.kind(), device.name()), (DeviceKind::Emulator, "PTX emulator"));
    let module = device.load_module(ModuleSource::ptx(TEXT)).unwrap();
    let error = device.kernel(&module, "three").unwrap_err();
    assert_eq!(error.to_string(), "the module has no kernel `three`; it has: one, two");
    assert!(device.record_event(Stream::DEFAULT).unwrap().is_none());
    let other = fornax_runtime::device::Module::new(5u32);
    assert!(matches!(device.kernel(&other, "one"), Err(Error::ForeignHandle { what: "module" })));
}

#[test]
fn a_device_may_be_used_by_several_threads() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n\
        .visible .entry add(.param .u64 p, .param .u32 n) { .reg .b32 %r<4>; .reg .b64 %d<4>;\n\
        mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p]; ld.param.u32 %r1, [n]; mul.wide.u32 %d1, %r0, 4;\n\
        add.s64 %d0, %d0, %d1; add.u32 %r2, %r0, %r1; st.global.u32 [%d0], %r2; ret; }\n";
    let emulator = Arc::new(Emulator::new(EmulatorOptions::default()));
    let module = emulator.load_module(ModuleSource::ptx(text)).unwrap();
    let kernel = emulator.kernel(&module, "add").unwrap();
    drop(module);
    std::thread::scope(|scope| {
        for n in 0..4u32 {
            let (emulator, kernel) = (&emulator, &kernel);
            scope.spawn(move || {
                let address = emulator.alloc(256).unwrap();
                let args = [KernelArg::Pointer(address), KernelArg::I32(n as i32)];
                let config = LaunchConfig::linear(1, 64);
                emulator.launch(kernel, &config, &args, Stream::DEFAULT).unwrap();
                let mut bytes = [0; 256];
                emulator.copy_to_host(&mut bytes, address, Stream::DEFAULT).unwrap();
                let words: Vec<u32> = crate::harness::words(&bytes);
                assert!(words.iter().enumerate().all(|(i, &word)| word == i as u32 + n));
                emulator.free(address).unwrap();
            });
        }
    });
    assert!(emulator.warp_instructions() > 0);
}
