//! CUDA graphs and events.

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys;

use super::context::{Context, cuda, stream_handle};
use crate::device::Stream;
use crate::error::Error;

/// A graph ready to launch.
pub(super) struct RecordedGraph {
    context: Arc<Context>,
    handle: sys::CUgraphExec,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for RecordedGraph {}
// SAFETY: launching does not change the graph; the driver orders its launches.
unsafe impl Sync for RecordedGraph {}

impl RecordedGraph {
    pub(super) fn record(
        context: &Arc<Context>,
        work: &mut dyn FnMut(Stream) -> Result<(), Error>,
    ) -> Result<RecordedGraph, Error> {
        let _current = context.enter()?;
        // The legacy default stream cannot be captured, and the caller's may be in use.
        let stream = OwnStream::new()?;
        // Thread-local: what other threads do meanwhile, such as allocating, is no concern of ours.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        cuda!(cuStreamBeginCapture_v2(stream.0, mode))?;
        let worked = work(Stream(stream.0 as usize as u64));
        let mut graph = ptr::null_mut();
        // Also after a failure, since a stream that is being captured cannot be destroyed.
        let ended = cuda!(cuStreamEndCapture(stream.0, &mut graph));
        let graph = OwnGraph(graph);
        worked?;
        ended?;
        let mut handle = ptr::null_mut();
        cuda!(cuGraphInstantiateWithFlags(&mut handle, graph.0, 0))?;
        Ok(RecordedGraph { context: context.clone(), handle })
    }

    pub(super) fn launch(&self, stream: Stream) -> Result<(), Error> {
        let _current = self.context.enter()?;
        cuda!(cuGraphLaunch(self.handle, stream_handle(stream)))
    }
}

impl Drop for RecordedGraph {
    fn drop(&mut self) {
        if let Ok(_current) = self.context.enter() {
            // Launches under way finish first; fails only when the context is already lost.
            let _ = cuda!(cuGraphExecDestroy(self.handle));
        }
    }
}

/// Whether a stream is being captured.
pub(super) fn is_capturing(context: &Arc<Context>, stream: Stream) -> Result<bool, Error> {
    const NONE: sys::CUstreamCaptureStatus =
        sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let _current = context.enter()?;
    let mut status = NONE;
    match cuda!(cuStreamIsCapturing(stream_handle(stream), &mut status)) {
        // The legacy stream cannot be captured, nor used while others are: the launch will say so.
        Err(Error::Cuda { name, .. }) if name == "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT" => Ok(false),
        other => other.map(|()| status != NONE),
    }
}

struct OwnStream(sys::CUstream);

impl OwnStream {
    fn new() -> Result<OwnStream, Error> {
        let mut stream = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        cuda!(cuStreamCreate(&mut stream, flags))?;
        Ok(OwnStream(stream))
    }
}

impl Drop for OwnStream {
    fn drop(&mut self) {
        // Fails only when the context is already lost.
        let _ = cuda!(cuStreamDestroy_v2(self.0));
    }
}

struct OwnGraph(sys::CUgraph);

impl Drop for OwnGraph {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // Fails only when the context is already lost.
            let _ = cuda!(cuGraphDestroy(self.0));
        }
    }
}

/// An event that was recorded once.
pub(super) struct RecordedEvent {
    context: Arc<Context>,
    handle: sys::CUevent,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for RecordedEvent {}
// SAFETY: the event is not recorded again.
unsafe impl Sync for RecordedEvent {}

impl RecordedEvent {
    pub(super) fn record(context: &Arc<Context>, stream: Stream) -> Result<RecordedEvent, Error> {
        let _current = context.enter()?;
        let mut handle = ptr::null_mut();
        cuda!(cuEventCreate(&mut handle, sys::CUevent_flags::CU_EVENT_DEFAULT as u32))?;
        let event = RecordedEvent { context: context.clone(), handle };
        cuda!(cuEventRecord(handle, stream_handle(stream)))?;
        Ok(event)
    }

    pub(super) fn elapsed_ns(&self, end: &RecordedEvent) -> Result<f64, Error> {
        let _current = self.context.enter()?;
        cuda!(cuEventSynchronize(end.handle))?;
        let mut milliseconds = 0.0f32;
        cuda!(cuEventElapsedTime(&mut milliseconds, self.handle, end.handle))?;
        Ok(f64::from(milliseconds) * 1e6)
    }
}

impl Drop for RecordedEvent {
    fn drop(&mut self) {
        if let Ok(_current) = self.context.enter() {
            // Fails only when the context is already lost.
            let _ = cuda!(cuEventDestroy_v2(self.handle));
        }
    }
}
