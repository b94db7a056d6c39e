"""Seeded values for the tensors of a task, drawn on their device.

A fill is what a table says of a tensor: `uniform lo hi`, `normal mean std`, `constant v`, `values [..]`
(flat), `integers lo hi` (hi included), `choice [..]`, `tril` (of ones), and on the last two dims
`upper_triangular`, `lower_triangular`, `symmetric` (each `lo hi`) and `symmetric_choice [..]`.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import torch

from .workload import BenchError, TensorSpec


def fill(tensor: torch.Tensor, spec: TensorSpec, seed: int) -> None:
    """Fills `tensor` in place as `spec` says; the values depend on the seed and the tensor's name only."""
    generator = torch.Generator(device=tensor.device)
    # The CPU's generator takes no more than 32 bits of a seed.
    generator.manual_seed(zlib.crc32(f"{seed} {spec.name}".encode()))
    kind, *arguments = spec.fill
    if kind not in _FILLS:
        raise BenchError(f"tensor `{spec.name}`: unknown fill `{kind}`")
    with torch.no_grad():
        _FILLS[kind](tensor, generator, *arguments)


def rescaled(spec: TensorSpec) -> TensorSpec:
    """The same tensor with a fill that keeps the signal alive from layer to layer.

    Weights get variance `2 / fan_in` (He et al. 2015), so that a ReLU network neither dies out nor
    grows; scales and variances lie around one, shifts and means around zero; real inputs are normal.
    A result computed from these depends on every input and weight even where the task's own fill
    makes it nearly constant. Integer tensors, masks and module constants stay as they are.
    """
    if spec.dtype != "float32" or spec.kind == "constant_tensor":
        return spec
    if spec.kind == "input":
        drawn = ("normal", 0.0, 1.0) if spec.fill[0] in ("uniform", "normal") else spec.fill
    elif len(spec.shape) >= 2 and spec.fill[0] in ("uniform", "normal"):
        fan_in = max(1, spec.numel // spec.shape[0])
        drawn = ("normal", 0.0, math.sqrt(2.0 / fan_in))
    elif spec.target.endswith(("running_var", "weight")) and spec.fill[0] in (
        "constant",
        "uniform",
    ):
        drawn = ("uniform", 0.5, 1.5)
    elif spec.fill[0] in ("constant", "uniform", "normal"):
        drawn = ("normal", 0.0, 0.1)
    else:
        drawn = spec.fill
    return TensorSpec(spec.name, spec.shape, spec.dtype, drawn, spec.target, spec.kind)


def _uniform(tensor: torch.Tensor, generator: torch.Generator, low: float, high: float) -> None:
    tensor.uniform_(low, high, generator=generator)


def _normal(tensor: torch.Tensor, generator: torch.Generator, mean: float, std: float) -> None:
    tensor.normal_(mean, std, generator=generator)


def _constant(tensor: torch.Tensor, _: torch.Generator, value: float) -> None:
    tensor.fill_(value)


def _values(tensor: torch.Tensor, _: torch.Generator, values: list[Any]) -> None:
    tensor.copy_(torch.tensor(values, dtype=tensor.dtype).reshape(tensor.shape))


def _integers(tensor: torch.Tensor, generator: torch.Generator, low: int, high: int) -> None:
    tensor.random_(int(low), int(high) + 1, generator=generator)


def _choice(tensor: torch.Tensor, generator: torch.Generator, values: list[Any]) -> None:
    table = torch.tensor(values, dtype=tensor.dtype, device=tensor.device)
    drawn = torch.randint(len(values), tensor.shape, generator=generator, device=tensor.device)
    tensor.copy_(table[drawn])


def _tril(tensor: torch.Tensor, _: torch.Generator) -> None:
    tensor.fill_(1).tril_()


def _upper(tensor: torch.Tensor, generator: torch.Generator, low: float, high: float) -> None:
    tensor.uniform_(low, high, generator=generator).triu_()


def _lower(tensor: torch.Tensor, generator: torch.Generator, low: float, high: float) -> None:
    tensor.uniform_(low, high, generator=generator).tril_()


def _mirror(tensor: torch.Tensor) -> None:
    tensor.copy_(tensor.triu() + tensor.triu(1).mT)


def _symmetric(tensor: torch.Tensor, generator: torch.Generator, low: float, high: float) -> None:
    _uniform(tensor, generator, low, high)
    _mirror(tensor)


def _symmetric_choice(tensor: torch.Tensor, generator: torch.Generator, values: list[Any]) -> None:
    _choice(tensor, generator, values)
    _mirror(tensor)


_FILLS = {
    "uniform": _uniform,
    "normal": _normal,
    "constant": _constant,
    "values": _values,
    "integers": _integers,
    "choice": _choice,
    "tril": _tril,
    "upper_triangular": _upper,
    "lower_triangular": _lower,
    "symmetric": _symmetric,
    "symmetric_choice": _symmetric_choice,
}
