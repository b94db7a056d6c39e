"""Run models that Fornax compiled, on tensors of torch without copies or on arrays of numpy.

    import fornax

    m = fornax.load("model.fnx")      # the first GPU; or device="cuda:1", device="emulator"
    y = m(x)                          # torch CUDA tensors in and out, on torch's current stream

Weights that are not in the bundle are given by name, as a state dict or a ``.safetensors`` file; tensors of
the GPU are used where they are:

    m = fornax.load("model.fnx", weights=module.state_dict())
    m.refresh()                       # after they were changed in place

With the extra ``fornax[compiler]``, torch modules are compiled here, too:

    m = fornax.compile(module, (x,))
    f = torch.compile(module, backend="fornax")

Models run forward only: outputs carry no gradients.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fornax._errors import Error, InputError
from fornax._native import Model
from fornax._types import Kernel, Memory, TensorSpec

if TYPE_CHECKING:
    from fornax._compile import compile

__all__ = ["Error", "InputError", "Kernel", "Memory", "Model", "TensorSpec", "compile", "load"]


def load(
    path: str | os.PathLike[str],
    weights: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    device: Any = "cuda:0",
    *,
    target: str | None = None,
) -> Model:
    """Load a bundle onto a device.

    path: the bundle (``.fnx``).
    weights: the weights that the bundle leaves open, by name: tensors of torch or arrays of numpy, or a
        ``.safetensors`` file. Names that the model does not use are ignored. Contiguous torch tensors on the
        model's GPU are used where they lie and kept alive; all others are copied to the device.
    device: ``"cuda:0"``, a ``torch.device``, or ``"emulator"``, which runs the GPU code on the CPU, slowly and
        checking every access.
    target: the code to use, such as ``"sm_80"``, when a bundle has some for several GPUs; otherwise the best
        that the device takes.

    Raises `Error` when the file, the device or the driver will not do, and its subclass `InputError` when
    weights are missing or are not what the model takes.
    """
    if weights is not None:
        is_path = isinstance(weights, (str, os.PathLike))
        weights = os.fspath(weights) if is_path else dict(weights)
    return Model(os.fspath(path), weights, _device_name(device), target)


def _device_name(device: Any) -> str:
    name = str(device)
    torch = sys.modules.get("torch")
    if name == "cuda" and torch is not None and torch.cuda.is_available():
        return f"cuda:{torch.cuda.current_device()}"
    return name


def __getattr__(name: str) -> Any:
    # Compiling needs torch, which takes seconds to import; running does not.
    if name == "compile":
        from fornax._compile import compile

        return compile
    raise AttributeError(f"module 'fornax' has no attribute {name!r}")
