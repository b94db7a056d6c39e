"""What a model tells about itself."""

from __future__ import annotations

from typing import NamedTuple


class TensorSpec(NamedTuple):
    """An input, output or weight of a model."""

    name: str
    """The name in the imported model."""
    dtype: str
    """The element type as numpy and torch name it, for example ``float32``."""
    shape: tuple[int | str, ...]
    """Sizes, outermost first. One that the inputs decide is text: ``batch``, ``2*batch + 1``."""


class Kernel(NamedTuple):
    """A kernel that a call launches."""

    name: str
    """The name that profilers show."""
    region: str
    """The region of the model that it computes, or computes a part of."""
    schedule: str
    """How the region is computed."""
    nodes: tuple[str, ...]
    """Names of the imported model's nodes in the region."""


class Memory(NamedTuple):
    """Device memory of a model, in bytes."""

    weights: int
    """Weights that were copied to the device."""
    borrowed: int
    """Weights that are used where the caller has them."""
    prepared: int
    """What was computed from the weights, once."""
    scratch: int
    """Intermediate results of one call: of all calls, or, when it depends on the inputs' shapes, the
    most that a call took so far."""
