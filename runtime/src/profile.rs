//! Where the time of a run goes, kernel by kernel.

use std::time::Instant;

use fornax_bundle::Tensor;

use crate::device::{Buffer, Device, Event, Stream};
use crate::error::Error;
use crate::load::LoadedBundle;
use crate::run::{Launched, Observer};

/// Times of a bundle's kernels.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The device.
    pub device: String,
    /// Whether times are those of a GPU; the emulator's say nothing about one.
    pub is_gpu_time: bool,
    /// Runs measured.
    pub n_runs: usize,
    /// Launches in order.
    pub launches: Vec<LaunchProfile>,
}

/// One launch of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct LaunchProfile {
    /// The index among the plan's kernels.
    pub kernel: usize,
    /// The kernel's name.
    pub name: String,
    /// The region it belongs to.
    pub region: String,
    /// Blocks in the grid.
    pub grid: [u32; 3],
    /// Median over the runs, in nanoseconds. Events stand around each launch, so that a few microseconds
    /// of launch latency are in it.
    pub time_ns: f64,
    /// Bytes that must move through device memory.
    pub bytes: u64,
    /// Arithmetic operations.
    pub flops: u64,
    /// The time that bytes and operations need at least, over the time taken; none where the device's rates
    /// are unknown or times mean nothing.
    pub roofline_share: Option<f64>,
}

impl Profile {
    /// Time of all launches together, in nanoseconds.
    pub fn total_ns(&self) -> f64 {
        self.launches.iter().map(|launch| launch.time_ns).sum()
    }
}

/// Runs a bundle `n_warmup + n_runs` times and measures the last `n_runs`.
///
/// On a device without events (the emulator) the times are the host's.
///
/// # Errors
/// As [`LoadedBundle::run`].
pub fn profile(
    bundle: &LoadedBundle,
    inputs: &[Tensor],
    n_warmup: usize,
    n_runs: usize,
) -> Result<Profile, Error> {
    for _ in 0..n_warmup {
        bundle.run(inputs)?;
    }
    let mut samples: Vec<(LaunchProfile, Vec<f64>)> = Vec::new();
    let mut is_gpu_time = true;
    let n_runs = n_runs.max(1);
    for _ in 0..n_runs {
        let mut timer = Timer::default();
        bundle.run_observed(inputs, &mut timer)?;
        for (position, timed) in timer.launches.into_iter().enumerate() {
            let (time_ns, is_event) = timed.time_ns(bundle.device().as_ref())?;
            is_gpu_time &= is_event;
            if position == samples.len() {
                samples.push((timed.launch, Vec::with_capacity(n_runs)));
            }
            samples[position].1.push(time_ns);
        }
    }
    let properties = bundle.device().properties();
    let rates = properties.bandwidth_bytes_per_s.zip(properties.fp32_flops_per_s);
    let finished = samples.into_iter().map(|(mut launch, mut times)| {
        launch.time_ns = median(&mut times);
        launch.roofline_share =
            rates.filter(|_| is_gpu_time && launch.time_ns > 0.0).map(|(bandwidth, flops)| {
                let floor = (launch.bytes as f64 / bandwidth).max(launch.flops as f64 / flops);
                floor * 1e9 / launch.time_ns
            });
        launch
    });
    let launches: Vec<_> = finished.collect();
    Ok(Profile { device: bundle.device().name().to_owned(), is_gpu_time, n_runs, launches })
}

/// What a call costs the host, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostCost {
    /// Of [`LoadedBundle::run_device`].
    pub direct_ns: f64,
    /// Of [`LoadedBundle::run_graph`], once the graph is recorded.
    pub graph_ns: f64,
}

/// Measures what submitting a run costs the host: the mean of `n_calls` calls, each on an idle device, so that a
/// full queue is not what is measured.
///
/// On the emulator, which runs kernels at once, it is the time of the whole run.
///
/// # Errors
/// As [`LoadedBundle::run`].
pub fn host_cost(
    bundle: &LoadedBundle,
    inputs: &[Tensor],
    n_calls: usize,
) -> Result<HostCost, Error> {
    let (device, stream) = (bundle.device(), Stream::DEFAULT);
    let (dims, sizes) = bundle.output_sizes(inputs)?;
    let upload = |input: &Tensor| Buffer::from_bytes(device.clone(), input.bytes());
    let given = inputs.iter().map(upload).collect::<Result<Vec<_>, _>>()?;
    let outputs = sizes
        .iter()
        .map(|(.., n_bytes)| Buffer::new(device.clone(), *n_bytes))
        .collect::<Result<Vec<_>, _>>()?;
    let results: Vec<_> = outputs.iter().map(Buffer::address).collect();
    let pointers: Vec<_> = given.iter().map(Buffer::address).collect();
    let mean = |submit: &dyn Fn() -> Result<(), Error>| {
        submit()?;
        device.synchronize(stream)?;
        let mut total = 0.0;
        for _ in 0..n_calls {
            let start = Instant::now();
            submit()?;
            total += start.elapsed().as_nanos() as f64;
            device.synchronize(stream)?;
        }
        Ok::<_, Error>(total / n_calls.max(1) as f64)
    };
    Ok(HostCost {
        direct_ns: mean(&|| bundle.run_device(&pointers, &results, &dims, stream))?,
        graph_ns: mean(&|| bundle.run_graph(&pointers, &results, &dims, stream))?,
    })
}

/// The middle value, or the mean of the two middle ones.
fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    let n = times.len();
    match n {
        0 => 0.0,
        _ => (times[(n - 1) / 2] + times[n / 2]) / 2.0,
    }
}

/// Takes a time before and after each launch.
#[derive(Default)]
struct Timer {
    start: Option<Moment>,
    launches: Vec<TimedLaunch>,
}

struct TimedLaunch {
    launch: LaunchProfile,
    start: Moment,
    end: Moment,
}

/// A point in time, on the device where it tells.
struct Moment {
    event: Option<Event>,
    host: Instant,
}

impl Moment {
    fn now(launch: &Launched<'_>) -> Result<Moment, Error> {
        let event = launch.bundle().device().record_event(launch.stream)?;
        Ok(Moment { event, host: Instant::now() })
    }
}

impl TimedLaunch {
    /// The time between the moments, and whether the device took it.
    fn time_ns(&self, device: &dyn Device) -> Result<(f64, bool), Error> {
        match (&self.start.event, &self.end.event) {
            (Some(start), Some(end)) => Ok((device.elapsed_ns(start, end)?, true)),
            _ => Ok((self.end.host.duration_since(self.start.host).as_nanos() as f64, false)),
        }
    }
}

impl Observer for Timer {
    fn before_launch(&mut self, launch: &Launched<'_>) -> Result<(), Error> {
        self.start = Some(Moment::now(launch)?);
        Ok(())
    }

    fn after_launch(&mut self, launched: &Launched<'_>) -> Result<(), Error> {
        let end = Moment::now(launched)?;
        let start = self.start.take().expect("invariant: each launch is announced");
        let kernel = launched.declaration();
        let count = |dim: &fornax_bundle::Dim| {
            dim.eval(launched.dims()).map(|value| u64::try_from(value).unwrap_or(0))
        };
        let launch = LaunchProfile {
            kernel: launched.kernel,
            name: kernel.name.clone(),
            region: launched.bundle().plan().regions[kernel.region].name.clone(),
            grid: launched.config.grid,
            time_ns: 0.0,
            bytes: count(&kernel.bytes)?,
            flops: count(&kernel.flops)?,
            roofline_share: None,
        };
        self.launches.push(TimedLaunch { launch, start, end });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn medians() {
        assert_eq!(median(&mut []), 0.0);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
