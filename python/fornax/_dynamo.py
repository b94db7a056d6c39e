"""The backend of `torch.compile`: ``torch.compile(module, backend="fornax")``."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import fornax
from fornax._compile import compile_bundle, device_of
from fornax._errors import Error
from fornax._native import Model

# What kernels use is aligned to this many bytes; torch's own allocations always are.
_ALIGNMENT = 16

# Sets of parameters kept loaded per graph.
_MAX_LOADED = 8


class FallbackWarning(UserWarning):
    """A graph runs in eager mode, and why."""


def backend(
    graph: torch.fx.GraphModule, example_inputs: list[Any], *, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile a graph that torch captured. What Fornax cannot take runs in eager mode, with a warning."""
    try:
        return _Compiled(graph, example_inputs, options or {})
    except Error as error:
        message = f"fornax: a graph of {len(graph.graph.nodes)} nodes runs in eager mode: {error}"
        warnings.warn(message, FallbackWarning, stacklevel=2)
        return graph.forward


class _Compiled:
    """A compiled graph. Parameters and buffers are bound where they are, and followed when they change."""

    def __init__(self, graph: torch.fx.GraphModule, examples: list[Any], options: dict[str, Any]):
        _check(graph, examples)
        self._bound = [index for index, example in enumerate(examples) if _is_static(example)]
        self._inputs = [index for index in range(len(examples)) if index not in self._bound]
        # Kept for parameters that come later: the same graph may be called for other modules.
        self._folder = tempfile.TemporaryDirectory(prefix="fornax-")
        self._bundle = Path(self._folder.name) / "graph.fnx"
        module = _with_attributes(graph, {index: examples[index] for index in self._bound})
        inputs = tuple(examples[index] for index in self._inputs)
        self._constants = compile_bundle(module, inputs, self._bundle, None, options)
        self._loaded: dict[tuple[int, ...], _Loaded] = {}
        self._load(examples)

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        places = tuple(arguments[index].data_ptr() for index in self._bound)
        loaded = self._loaded.get(places) or self._load(arguments)
        changes = self._changes(arguments)
        if changes != loaded.changes:
            loaded.model.refresh()
            loaded.changes = changes
        result = loaded.model(*[_usable(arguments[index]) for index in self._inputs])
        return result if isinstance(result, tuple) else (result,)

    def _load(self, arguments: Any) -> _Loaded:
        bound = {_attribute(index): arguments[index].detach() for index in self._bound}
        device = device_of([tensor for tensor in arguments if isinstance(tensor, torch.Tensor)])
        model = fornax.load(self._bundle, {**self._constants, **bound}, device)
        if len(self._loaded) >= _MAX_LOADED:
            self._loaded.pop(next(iter(self._loaded)))
        # Models keep what is bound alive, so that no other tensor can come to lie there.
        places = tuple(tensor.data_ptr() for tensor in bound.values())
        self._loaded[places] = _Loaded(model, self._changes(arguments))
        return self._loaded[places]

    def _changes(self, arguments: Any) -> tuple[int, ...]:
        # Tensors of inference mode count no versions; torch forbids to change them outside of it.
        bound = [arguments[index] for index in self._bound]
        return tuple(0 if tensor.is_inference() else tensor._version for tensor in bound)


@dataclass
class _Loaded:
    """The model for one set of parameters, and how often each had been written."""

    model: Model
    changes: tuple[int, ...]


def _check(graph: torch.fx.GraphModule, examples: list[Any]) -> None:
    if not all(isinstance(example, torch.Tensor) for example in examples):
        raise Error("it takes sizes as inputs: use torch.compile(..., dynamic=False)")
    if torch.is_grad_enabled() and any(example.requires_grad for example in examples):
        raise Error("gradients are wanted of it: call it under torch.no_grad()")
    (output,) = [node for node in graph.graph.nodes if node.op == "output"]
    if not all(isinstance(value, torch.fx.Node) for value in output.args[0]):
        raise Error("it returns something else than tensors")


def _is_static(example: torch.Tensor) -> bool:
    """Whether it is a parameter or, as dynamo marks them, a buffer of a module."""
    is_marked = getattr(example, "_dynamo_static_input_type", None) is not None
    return isinstance(example, torch.nn.Parameter) or is_marked


def _with_attributes(
    graph: torch.fx.GraphModule, values: dict[int, torch.Tensor]
) -> torch.fx.GraphModule:
    """The graph with some of its inputs as buffers of the module."""
    copied = torch.fx.Graph()
    copied.output(copied.graph_copy(graph.graph, {}))
    module = torch.fx.GraphModule(graph, copied)
    placeholders = [node for node in copied.nodes if node.op == "placeholder"]
    for index, value in values.items():
        node = placeholders[index]
        module.register_buffer(_attribute(index), value.detach())
        with copied.inserting_before(node):
            node.replace_all_uses_with(copied.get_attr(_attribute(index)))
        copied.erase_node(node)
    module.recompile()
    return module


def _attribute(index: int) -> str:
    return f"input_{index}"


def _usable(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().contiguous()
    return tensor if tensor.data_ptr() % _ALIGNMENT == 0 else tensor.clone()
