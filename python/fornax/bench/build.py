"""A `torch.fx` module from a workload table."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from .fill import fill, rescaled
from .workload import BenchError, TensorSpec, Workload

_DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "int64": torch.int64,
    "int32": torch.int32,
    "bool": torch.bool,
}
#: Operators that return their first operand: what they do beside that (autograd, training) is nothing here.
_IDENTITIES = {
    "aten.lift_fresh_copy.default",
    "aten.detach.default",
    "aten.detach_.default",
    "aten.alias.default",
    "aten.dropout.default",
}
#: Keyword arguments about where a result lies; the module runs wherever its tensors are.
_PLACEMENT = {"pin_memory", "layout", "path"}


def torch_dtype(name: str) -> torch.dtype:
    """The torch element type that tables call `name`."""
    return _DTYPES[name]


def build(workload: Workload, device: str, dtype: torch.dtype | None = None) -> fx.GraphModule:
    """The task as a module whose parameters are uninitialised tensors on `device`.

    `dtype` replaces `float32` throughout, parameters and operators alike: `torch.float64` gives the
    reference. Under a `FakeTensorMode` nothing is allocated.
    """
    root = torch.nn.Module()
    graph = fx.Graph()
    values: dict[str, Any] = {}
    for spec in workload.inputs:
        values[spec.name] = graph.placeholder(spec.name)
    for entry in workload.source["inputs"]:
        if "value" in entry:
            values[entry["name"]] = entry["value"]
    for spec in workload.params:
        _register(root, spec, torch.empty(spec.shape, dtype=_of(spec, dtype), device=device))
        values[spec.name] = graph.get_attr(spec.target)
    for node in workload.nodes:
        if node.op == "aten._assert_tensor_metadata.default":
            continue
        args = [_value(arg, values, device, dtype) for arg in node.args]
        if node.op in _IDENTITIES:
            values[node.name] = args[0]
            continue
        kwargs = {
            key: _value(arg, values, device, dtype)
            for key, arg in node.kwargs.items()
            if key not in _PLACEMENT
        }
        target = _target(node.op)
        if node.op == "aten.to.dtype_layout":
            target, args, kwargs = torch.ops.aten.to.dtype, [args[0], kwargs["dtype"]], {}
        values[node.name] = graph.call_function(target, tuple(args), kwargs)
        values[node.name].name = f"v_{node.name}"
    results = tuple(_value(output, values, device, dtype) for output in workload.outputs)
    graph.output(results[0] if len(results) == 1 else results)
    graph.lint()
    return fx.GraphModule(root, graph, class_name=f"T_{workload.slug}").eval()


def empty_inputs(workload: Workload, device: str) -> list[torch.Tensor]:
    """Uninitialised inputs in the module's order."""
    return [
        torch.empty(spec.shape, dtype=torch_dtype(spec.dtype), device=device)
        for spec in workload.inputs
    ]


def fill_inputs(
    workload: Workload, inputs: list[torch.Tensor], seed: int, rescale: bool = False
) -> None:
    """Draws the inputs in place."""
    for spec, tensor in zip(workload.inputs, inputs, strict=True):
        fill(tensor, rescaled(spec) if rescale else spec, seed)


def fill_params(
    workload: Workload, module: torch.nn.Module, seed: int, rescale: bool = False
) -> None:
    """Draws the module's parameters and buffers in place."""
    state = module.state_dict()
    for spec in workload.params:
        fill(state[spec.target], rescaled(spec) if rescale else spec, seed)


def keep_recurrent_layers_eager(module: fx.GraphModule) -> None:
    """Makes `torch.compile` break its graph at LSTM and GRU, as it does at `nn.LSTM` and `nn.GRU`.

    It would unroll the bare operators over time instead, which takes minutes and loses cuDNN's kernels.
    """
    eager = {torch.ops.aten.lstm.input: _lstm, torch.ops.aten.gru.input: _gru}
    for node in module.graph.nodes:
        node.target = eager.get(node.target, node.target)
    module.recompile()


def flatten_recurrent_weights(workload: Workload, module: torch.nn.Module) -> None:
    """Lays the weights of LSTM and GRU out as cuDNN wants them, as `nn.LSTM` and `nn.GRU` do.

    Without it cuDNN copies them at every call, and the baseline would look slower than it is.
    """
    for node in workload.nodes:
        if not node.op.startswith(("aten.lstm.input", "aten.gru.input")):
            continue
        lstm = node.op.startswith("aten.lstm")
        names = {spec.name: spec.target for spec in workload.params}
        weights = [module.get_parameter(names[arg["ref"]]) for arg in node.args[2]]
        has_bias, layers, _, _, bidirectional, batch_first = node.args[3:9]
        with torch.no_grad():
            torch._cudnn_rnn_flatten_weight(  # what nn.RNNBase.flatten_parameters calls
                weights,
                4 if has_bias else 2,
                weights[0].shape[1],
                2 if lstm else 3,
                weights[1].shape[1],
                0,
                layers,
                batch_first,
                bidirectional,
            )


@torch.compiler.disable
def _lstm(*args: Any) -> Any:
    return torch.ops.aten.lstm.input(*args)


@torch.compiler.disable
def _gru(*args: Any) -> Any:
    return torch.ops.aten.gru.input(*args)


def _of(spec: TensorSpec, dtype: torch.dtype | None) -> torch.dtype:
    own = torch_dtype(spec.dtype)
    return dtype if dtype is not None and own is torch.float32 else own


def _register(root: torch.nn.Module, spec: TensorSpec, tensor: torch.Tensor) -> None:
    *path, leaf = spec.target.split(".")
    module = root
    for part in path:
        if not hasattr(module, part):
            module.add_module(part, torch.nn.Module())
        module = getattr(module, part)
    if spec.kind == "parameter":
        module.register_parameter(leaf, torch.nn.Parameter(tensor, requires_grad=False))
    else:
        module.register_buffer(leaf, tensor)


def _target(op: str) -> Callable[..., Any]:
    if op == "<built-in function getitem>":
        return operator.getitem
    namespace, _, rest = op.partition(".")
    name, _, overload = rest.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), name), overload)
    except AttributeError as error:
        raise BenchError(f"torch {torch.__version__} has no operator `{op}`") from error


def _value(arg: Any, values: dict[str, Any], device: str, dtype: torch.dtype | None) -> Any:
    if isinstance(arg, list):
        return [_value(item, values, device, dtype) for item in arg]
    if not isinstance(arg, dict):
        return arg
    (key, payload), *_ = arg.items()
    if key == "ref":
        return values[payload]
    if key == "float":
        return float(payload)
    if key == "dtype":
        own = torch_dtype(payload)
        return dtype if dtype is not None and own is torch.float32 else own
    if key == "const" and payload == "cuda":
        return torch.device(device)
    raise BenchError(f"a table holds `{arg}`, which this builder does not know")
