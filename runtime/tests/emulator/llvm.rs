//! Kernels as LLVM 22 prints them.

use crate::elementwise::random;
use crate::harness::{Arg, f32_bytes, floats, run};
use fornax_runtime::device::LaunchConfig;

fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut next = random(seed);
    (0..n).map(|_| (next() % 2000) as f32 / 1000.0 - 1.0).collect()
}

fn text(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/ptx/");
    std::fs::read_to_string(format!("{folder}{name}.ptx")).unwrap()
}

#[test]
fn row_sums_through_shuffles_and_shared_memory() {
    for (n_rows, n, n_threads) in [(3, 1000, 256), (2, 5, 32), (1, 4096, 1024)] {
        let x = numbers(n_rows * n, 3);
        let args = [Arg::Input(&f32_bytes(&x)), Arg::Output(n_rows as u64 * 4), Arg::I32(n as i32)];
        let config = LaunchConfig::linear(n_rows as u32, n_threads);
        let outputs = run(&text("row_sum"), "row_sum", config, &args).unwrap();
        for (row, found) in x.chunks(n).zip(floats(&outputs[0])) {
            let exact: f64 = row.iter().map(|&v| f64::from(v)).sum();
            assert!((f64::from(found) - exact).abs() < 1.0e-3, "{found} for {exact}");
        }
    }
}

#[test]
fn a_tiled_matrix_product() {
    let (m, n, k) = (64, 128, 48);
    let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
    let args = [
        Arg::Input(&f32_bytes(&a)),
        Arg::Input(&f32_bytes(&b)),
        Arg::Output((m * n * 4) as u64),
        Arg::I32(n as i32),
        Arg::I32(k as i32),
    ];
    let mut config = LaunchConfig::linear(n as u32 / 64, 256);
    config.grid[1] = m as u32 / 64;
    let outputs = run(&text("gemm"), "gemm", config, &args).unwrap();
    let c = floats(&outputs[0]);
    for row in 0..m {
        for column in 0..n {
            // The kernel adds along k in order, one fused multiply-add at a time.
            let expected =
                (0..k).fold(0.0f32, |sum, i| a[row * k + i].mul_add(b[i * n + column], sum));
            assert_eq!(c[row * n + column], expected, "row {row}, column {column}");
        }
    }
}
