"""The backend of `torch.compile`: ``torch.compile(module, backend="fornax")``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from fornax._compile import compile as compile_module
from fornax._errors import Error
from fornax._native import Model

# What kernels use is aligned to this many bytes; torch's own allocations always are.
_ALIGNMENT = 16


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
    """A compiled graph. Parameters are bound where they are, and followed when they change."""

    def __init__(self, graph: torch.fx.GraphModule, examples: list[Any], options: dict[str, Any]):
        _check(graph, examples)
        bound = [
            index
            for index, example in enumerate(examples)
            if isinstance(example, torch.nn.Parameter) or _is_static(example)
        ]
        self._inputs = [index for index in range(len(examples)) if index not in bound]
        self._bound = bound
        self._module = _with_attributes(graph, {index: examples[index] for index in bound})
        self._options = options
        self._load([examples[index] for index in self._inputs], examples)

    def _load(self, inputs: list[torch.Tensor], arguments: Any) -> None:
        self._model: Model = compile_module(self._module, tuple(inputs), **self._options)
        self._pointers = self._places(arguments)
        self._versions = self._changes(arguments)

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        if self._places(arguments) != self._pointers:
            # Other parameters than those that were bound, such as those of a copy of the module.
            for index in self._bound:
                setattr(self._module, _attribute(index), arguments[index].detach())
            self._load([arguments[index] for index in self._inputs], arguments)
        elif (versions := self._changes(arguments)) != self._versions:
            self._model.refresh()
            self._versions = versions
        result = self._model(*[_usable(arguments[index]) for index in self._inputs])
        return result if isinstance(result, tuple) else (result,)

    def _places(self, arguments: Any) -> list[int]:
        return [arguments[index].data_ptr() for index in self._bound]

    def _changes(self, arguments: Any) -> list[int]:
        # Tensors of inference mode count no versions; torch forbids to change them outside of it.
        bound = [arguments[index] for index in self._bound]
        return [0 if tensor.is_inference() else tensor._version for tensor in bound]


def _check(graph: torch.fx.GraphModule, examples: list[Any]) -> None:
    if not all(isinstance(example, torch.Tensor) for example in examples):
        raise Error("it takes sizes as inputs: use torch.compile(..., dynamic=False)")
    if torch.is_grad_enabled() and any(example.requires_grad for example in examples):
        raise Error("gradients are wanted of it: call it under torch.no_grad()")
    (output,) = [node for node in graph.graph.nodes if node.op == "output"]
    if not all(isinstance(value, torch.fx.Node) for value in output.args[0]):
        raise Error("it returns something else than tensors")


def _is_static(example: torch.Tensor) -> bool:
    # Set by dynamo on the buffers of modules.
    return getattr(example, "_dynamo_static_input_type", None) is not None


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
