"""What is compared: functions from the user's tensors to the user's tensors."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch

from .problem import Tensors
from .workload import BenchError

#: The modes of torch that subjects are named after, and what `torch.compile` calls them.
TORCH_MODES = {
    "eager": None,
    "compile": "default",
    "reduce-overhead": "reduce-overhead",
    "max-autotune": "max-autotune",
}


_ONNX_DTYPES = {
    "tensor(float)": torch.float32,
    "tensor(double)": torch.float64,
    "tensor(int64)": torch.int64,
    "tensor(int32)": torch.int32,
    "tensor(bool)": torch.bool,
}


class Runner(Protocol):
    """A subject. `prepare_s` is what it took to get ready: compiling, loading, weights; in seconds."""

    name: str
    prepare_s: float

    def __call__(self, inputs: Tensors, out: Tensors | None = None) -> Tensors:
        """Computes the outputs, into `out` where the subject can write to given tensors."""

    def refresh(self) -> None:
        """Takes note that weights were changed in place."""


class TorchRunner:
    """A torch module, in eager mode or compiled."""

    def __init__(self, module: torch.nn.Module, name: str):
        self.name = name
        self.prepare_s = 0.0
        mode = TORCH_MODES[name]
        self._call: Any = module if mode is None else torch.compile(module, mode=mode)

    def warm_up(self, inputs: Tensors, calls: int = 3) -> None:
        """Compiles at the first call; CUDA graphs are recorded at the second; adds to `prepare_s`."""
        started = time.monotonic()
        for _ in range(calls):
            self(inputs)
        _synchronize(inputs)
        self.prepare_s += time.monotonic() - started

    def compile_only(self, inputs: Tensors) -> None:
        """Compiles without a launch, so that nothing needs the GPU to itself; adds to `prepare_s`.

        What the first launch tunes (block sizes) is left to `warm_up`.
        """
        from torch._inductor.output_code import CompiledFxGraph

        launch = CompiledFxGraph.__call__
        started = time.monotonic()
        CompiledFxGraph.__call__ = _no_launch  # type: ignore[method-assign]
        try:
            self(inputs)
        except _NoLaunch:
            pass
        finally:
            CompiledFxGraph.__call__ = launch  # type: ignore[method-assign]
        self.prepare_s += time.monotonic() - started

    def __call__(self, inputs: Tensors, out: Tensors | None = None) -> Tensors:
        """Runs the module; torch allocates the outputs."""
        with torch.no_grad():
            result = self._call(*inputs)
        return list(result) if isinstance(result, (tuple, list)) else [result]

    def refresh(self) -> None:
        """Nothing: torch reads the weights at every call."""


class FornaxRunner:
    """A bundle. `load` returns the loaded model, with weights bound; its time is `prepare_s`."""

    def __init__(self, load: Callable[[], Any], name: str = "fornax"):
        self.name = name
        started = time.monotonic()
        self.model = load()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.prepare_s = time.monotonic() - started

    def __call__(self, inputs: Tensors, out: Tensors | None = None) -> Tensors:
        """Runs the bundle; outputs are written to `out` if given."""
        if out:
            result = self.model(*inputs, out=out[0] if len(out) == 1 else tuple(out))
        else:
            result = self.model(*inputs)
        return list(result) if isinstance(result, tuple) else [result]

    def refresh(self) -> None:
        """Computes anew what the bundle prepared from the weights."""
        self.model.refresh()


class OnnxRuntimeRunner:
    """An ONNX model on the CPU through onnxruntime; the reference where there is no torch module."""

    def __init__(self, model: Path):
        import onnxruntime

        self.name = "onnxruntime"
        started = time.monotonic()
        self._session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        self._names = [entry.name for entry in self._session.get_inputs()]
        self.prepare_s = time.monotonic() - started

    def empty_inputs(self, dims: Mapping[str, int]) -> Tensors:
        """Uninitialised inputs of the model's types, with these values of symbolic sizes."""
        inputs, unused = [], set(dims)
        for entry in self._session.get_inputs():
            unused.difference_update(entry.shape)
            shape = [dims.get(size, size) if isinstance(size, str) else size for size in entry.shape]
            if not all(isinstance(size, int) for size in shape):
                raise BenchError(
                    f"input `{entry.name}` has sizes that vary: {entry.shape}; give them with "
                    "--dim NAME=SIZE"
                )
            inputs.append(torch.empty(shape, dtype=_ONNX_DTYPES[entry.type]))
        if unused:
            raise BenchError(f"--dim {min(unused)}: no input of the model has such a size")
        return inputs

    def __call__(self, inputs: Tensors, out: Tensors | None = None) -> Tensors:
        """Runs the model."""
        feed = {name: tensor.numpy() for name, tensor in zip(self._names, inputs, strict=True)}
        return [torch.from_numpy(array) for array in self._session.run(None, feed)]

    def refresh(self) -> None:
        """Nothing: the weights lie in the file."""


class _NoLaunch(Exception):
    """Compiled; nothing was launched."""


def _no_launch(*_: Any) -> Any:
    raise _NoLaunch


def _synchronize(tensors: Tensors) -> None:
    if any(tensor.is_cuda for tensor in tensors):
        torch.cuda.synchronize()
