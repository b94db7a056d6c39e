"""A task with its tensors on a device: what is computed, the inputs, the reference in `float64`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from . import build
from .workload import BenchError, Workload

Tensors = list[torch.Tensor]


class Problem(Protocol):
    """What subjects compute and are checked on.

    `inputs` are the user's tensors: the same objects throughout, drawn anew in place by `draw`.
    """

    name: str
    inputs: Tensors

    def draw(self, seed: int) -> None:
        """Draws other inputs; weights stay."""

    def draw_weights(self, rescale: bool) -> bool:
        """Draws weights, and from then on inputs, of the task's own or of rescaled distributions.

        Returns whether this problem can.
        """

    def reference(self) -> Tensors:
        """The outputs for the inputs as they are, computed in `float64`."""

    def weights(self) -> dict[str, torch.Tensor]:
        """The weights by name, the tensors themselves."""

    def empty_outputs(self) -> Tensors:
        """Uninitialised output tensors."""


@dataclass(frozen=True)
class OutputSpec:
    """Shape and element type of an output."""

    shape: tuple[int, ...]
    dtype: torch.dtype


class TableProblem:
    """A workload table's task. `module` computes it with torch."""

    def __init__(self, workload: Workload, device: str):
        self.name = workload.task
        self.workload = workload
        self.device = device
        self.module = build.build(workload, device)
        build.keep_recurrent_layers_eager(self.module)
        self.inputs: Tensors = []
        self.rescale = False

    def allocate(self) -> None:
        """Gives inputs and weights their memory, and weights their values."""
        self.inputs = build.empty_inputs(self.workload, self.device)
        state = self.module.state_dict(keep_vars=True)
        for spec in self.workload.params:
            if state[spec.target].shape != spec.shape:
                state[spec.target].data = torch.empty(
                    spec.shape, dtype=build.torch_dtype(spec.dtype), device=self.device
                )
        if self.device.startswith("cuda"):
            build.flatten_recurrent_weights(self.workload, self.module)
        self.draw_weights(rescale=False)

    def release(self) -> None:
        """Gives the memory of inputs and weights back; compiled modules stay valid."""
        self.inputs = []
        for tensor in self.module.state_dict(keep_vars=True).values():
            tensor.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)

    def draw(self, seed: int) -> None:
        """Draws other inputs; weights stay."""
        build.fill_inputs(self.workload, self.inputs, seed, self.rescale)

    def draw_weights(self, rescale: bool) -> bool:
        """Draws weights, and from then on inputs, of the task's own or of rescaled distributions."""
        self.rescale = rescale
        build.fill_params(self.workload, self.module, seed=0, rescale=rescale)
        return True

    def reference(self) -> Tensors:
        """The outputs in `float64`; intermediates are dropped as soon as nothing reads them."""
        module = build.build(self.workload, "meta", torch.float64)
        state = {name: _double(tensor) for name, tensor in self.module.state_dict().items()}
        module.load_state_dict(state, assign=True)
        _move_constants(module, self.device)
        if self.device.startswith("cuda"):
            build.flatten_recurrent_weights(self.workload, module)
        with torch.no_grad():
            interpreter = torch.fx.Interpreter(module, garbage_collect_values=True)
            return _as_list(interpreter.run(*[_double(tensor) for tensor in self.inputs]))

    def weights(self) -> dict[str, torch.Tensor]:
        """The weights by name, the tensors themselves."""
        return self.module.state_dict()

    def empty_outputs(self) -> Tensors:
        """Uninitialised output tensors."""
        outs = {node.name: node.out for node in self.workload.nodes}
        names = [output["ref"] for output in self.workload.outputs]
        return [
            torch.empty(
                outs[name]["shape"],
                dtype=build.torch_dtype(outs[name]["dtype"]),
                device=self.device,
            )
            for name in names
        ]


class ModuleProblem:
    """A Python file in the KernelBench convention: `Model`, `get_inputs`, `get_init_inputs`."""

    def __init__(self, path: Path, device: str):
        self.name = path.stem
        self.device = device
        source = _load_source(path)
        try:
            self._get_inputs: Callable[[], Sequence[Any]] = source.get_inputs
            torch.manual_seed(0)
            self.module = source.Model(*source.get_init_inputs()).eval().to(device)
        except AttributeError as error:
            raise BenchError(
                f"{path}: {error}; it must define Model, get_inputs() and get_init_inputs()"
            ) from error
        torch.manual_seed(0)
        drawn = list(self._get_inputs())
        if not all(isinstance(value, torch.Tensor) for value in drawn):
            raise BenchError(f"{path}: get_inputs() must return tensors only")
        self.inputs = [value.to(device).contiguous() for value in drawn]
        with torch.no_grad():
            outputs = _as_list(self.module(*self.inputs))
        self._outputs = [OutputSpec(tuple(out.shape), out.dtype) for out in outputs]

    def draw(self, seed: int) -> None:
        """Draws other inputs; weights stay."""
        torch.manual_seed(seed)
        for tensor, drawn in zip(self.inputs, self._get_inputs(), strict=True):
            tensor.copy_(drawn)

    def draw_weights(self, rescale: bool) -> bool:
        """Nothing: how weights are drawn is the file's own matter."""
        return not rescale

    def reference(self) -> Tensors:
        """The outputs of a copy of the module in `float64`."""
        import copy

        module = copy.deepcopy(self.module).double()
        with torch.no_grad():
            return _as_list(module(*[_double(tensor) for tensor in self.inputs]))

    def weights(self) -> dict[str, torch.Tensor]:
        """The weights by name, the tensors themselves."""
        return self.module.state_dict()

    def empty_outputs(self) -> Tensors:
        """Uninitialised output tensors."""
        return [
            torch.empty(spec.shape, dtype=spec.dtype, device=self.device) for spec in self._outputs
        ]


class OnnxProblem:
    """An ONNX model on the CPU. Its reference is onnxruntime: no torch module could run in `float64`."""

    def __init__(self, path: Path, dims: Mapping[str, int]):
        from .runner import OnnxRuntimeRunner

        self.name = path.stem
        self._reference = OnnxRuntimeRunner(path)
        self.inputs = self._reference.empty_inputs(dims)
        self.draw(0)
        self._outputs = [
            OutputSpec(tuple(out.shape), out.dtype) for out in self._reference(self.inputs)
        ]

    def draw(self, seed: int) -> None:
        """Draws other inputs from the normal distribution; integers are 0 or 1, mostly valid as indices."""
        generator = torch.Generator().manual_seed(seed)
        for tensor in self.inputs:
            if tensor.dtype.is_floating_point:
                tensor.normal_(generator=generator)
            else:
                tensor.random_(0, 2, generator=generator)

    def draw_weights(self, rescale: bool) -> bool:
        """Nothing: the weights lie in the file."""
        return not rescale

    def reference(self) -> Tensors:
        """The outputs of onnxruntime."""
        return [_double(tensor) for tensor in self._reference(self.inputs)]

    def weights(self) -> dict[str, torch.Tensor]:
        """None: the bundle embeds them."""
        return {}

    def empty_outputs(self) -> Tensors:
        """Uninitialised output tensors."""
        return [torch.empty(spec.shape, dtype=spec.dtype) for spec in self._outputs]


def _load_source(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"fornax_bench_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise BenchError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _move_constants(module: torch.fx.GraphModule, device: str) -> None:
    """Operators that make tensors make them on `device`; the module was built without memory."""
    for node in module.graph.nodes:
        if node.kwargs.get("device") is not None:
            node.kwargs = {**node.kwargs, "device": torch.device(device)}
    module.recompile()


def _double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.dtype.is_floating_point else tensor


def _as_list(result: Any) -> Tensors:
    return list(result) if isinstance(result, (tuple, list)) else [result]
