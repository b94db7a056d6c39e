"""How far a result is from the reference."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from .problem import Tensors

#: Elements compared at once: bounds the memory that comparing takes to a few gigabytes.
_PIECE = 1 << 26


@dataclass(frozen=True)
class Error:
    """The distance of outputs from the reference, the largest over all outputs.

    * `norm`: `|out - ref| / |ref|` in the Euclidean norm; `|out|` where the reference is zero.
      For integers and booleans: the share of elements that differ.
    * `worst`: the largest `|out - ref| / max(|ref|, rms(ref))` of an element.
    * `outside`: elements beyond `1e-2 + 1e-2 |ref|`, the published tolerance.
    * `not_finite`: elements that are NaN or infinite where the reference is not, or the other way round;
      an output that was not written counts here, since outputs are filled with NaN beforehand.
    """

    norm: float
    worst: float
    outside: int
    not_finite: int


def error(outputs: Tensors, reference: Tensors) -> Error:
    """Compares outputs with the reference; a wrong count, shape or element kind is an infinite error."""
    if len(outputs) != len(reference):
        return _INFINITE
    errors = [_error(out, ref) for out, ref in zip(outputs, reference, strict=True)]
    return Error(
        max(e.norm for e in errors),
        max(e.worst for e in errors),
        sum(e.outside for e in errors),
        sum(e.not_finite for e in errors),
    )


def distance(result: Tensors, expected: Tensors) -> float:
    """The largest relative distance in the norm, in the tensors' own precision: quick, and not a check."""
    found = 0.0
    for a, b in zip(result, expected, strict=True):
        if a.is_floating_point():
            norm = torch.linalg.vector_norm(b)
            found = max(found, float(torch.linalg.vector_norm(a - b) / norm.clamp_min(1e-30)))
    return found


def change(first: Tensors, second: Tensors) -> float:
    """By how much two references differ, relative to the first: near zero where the input hardly matters."""
    return max(_error(b, a).norm for a, b in zip(first, second, strict=True))


_INFINITE = Error(math.inf, math.inf, 0, 0)


def _error(out: torch.Tensor, ref: torch.Tensor) -> Error:
    if out.shape != ref.shape or out.dtype.is_floating_point != ref.dtype.is_floating_point:
        return _INFINITE
    if not ref.dtype.is_floating_point:
        differing = int((out != ref).sum())
        return Error(differing / max(1, ref.numel()), float(differing > 0), differing, 0)
    out, ref = out.reshape(-1), ref.reshape(-1)
    square = sum(_squares(piece) for piece in ref.split(_PIECE))
    rms = math.sqrt(float(square) / max(1, ref.numel()))
    sums = torch.zeros(4, dtype=torch.float64, device=ref.device)
    for piece, expected in zip(out.split(_PIECE), ref.split(_PIECE), strict=True):
        sums = _accumulate(sums, piece.double(), expected, rms)
    distance, worst, outside, not_finite = sums.tolist()
    scale = math.sqrt(float(square))
    norm = math.sqrt(distance) / scale if scale > 0 else math.sqrt(distance)
    return Error(norm, worst, int(outside), int(not_finite))


def _squares(piece: torch.Tensor) -> torch.Tensor:
    return torch.where(piece.isfinite(), piece, 0).double().square().sum()


def _accumulate(
    sums: torch.Tensor, out: torch.Tensor, ref: torch.Tensor, rms: float
) -> torch.Tensor:
    same = (out == ref) | (out.isnan() & ref.isnan())
    not_finite = ~same & (~out.isfinite() | ~ref.isfinite())
    difference = torch.where(same | not_finite, 0.0, out - ref).abs()
    size = torch.where(ref.isfinite(), ref, 0.0).abs()
    relative = difference / size.clamp_min(max(rms, torch.finfo(torch.float64).tiny))
    outside = not_finite | (difference > 1e-2 + 1e-2 * size)
    return torch.stack(
        (
            sums[0] + difference.square().sum(),
            torch.maximum(sums[1], relative.max() if relative.numel() else sums[1]),
            sums[2] + outside.sum(),
            sums[3] + not_finite.sum(),
        )
    )
