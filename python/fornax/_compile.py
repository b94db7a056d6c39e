"""Compiling torch modules: torch exports them, the program `fornax` compiles them."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fornax._errors import Error
from fornax._native import Model

# ONNX files end at 2 GiB (protobuf's limit); larger weights go to a file of their own.
_LARGEST_INLINE_BYTES = 1 << 30


def compile(
    module: Any,
    example_inputs: Any,
    out: str | os.PathLike[str] | None = None,
    *,
    device: Any = None,
    dynamic_shapes: Any = None,
    **options: Any,
) -> Model:
    """Compile a torch module and load it, bound to the module's own parameters and buffers.

    module: a ``torch.nn.Module``, exported in the mode (training or not) that it is in.
    example_inputs: a tensor or a tuple of them; the model takes inputs of these types and shapes.
    out: where to keep the bundle; nowhere unless said.
    device: where to load it: where the module's parameters are, and the emulator for those of the CPU.
    dynamic_shapes: sizes to leave open, as ``torch.export.export`` takes them.
    options: of ``fornax compile``: ``precision="ieee"``, ``target=("sm_90a", "sm_80")``, ``dim={"batch": 8}``.

    Needs torch, onnx and onnxscript: ``pip install fornax[compiler]``. Parameters that are changed in place are
    seen by later calls after `Model.refresh`. Raises `Error` when torch cannot export the module or Fornax cannot
    compile it.
    """
    import torch

    import fornax

    inputs = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    with tempfile.TemporaryDirectory(prefix="fornax-") as folder:
        bundle = Path(folder) / "model.fnx" if out is None else Path(out)
        constants = compile_bundle(module, inputs, bundle, dynamic_shapes, options)
        device = device_of([*state(module).values(), *inputs]) if device is None else device
        return fornax.load(bundle, {**constants, **state(module)}, device)


def compile_bundle(
    module: Any, inputs: tuple[Any, ...], bundle: Path, dynamic_shapes: Any, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Write a bundle without weights; give those that are no parameters or buffers of the module."""
    with tempfile.TemporaryDirectory(prefix="fornax-") as folder:
        model = Path(folder) / "model.onnx"
        constants = export(module, inputs, model, dynamic_shapes)
        run_program(["compile", model, "-o", bundle, "--weights", "external", *flags(options)])
    return constants


def export(module: Any, inputs: tuple[Any, ...], path: Path, dynamic_shapes: Any) -> dict[str, Any]:
    """Write a module as ONNX; give the weights in the file that are no parameters or buffers of it."""
    import torch

    try:
        import onnxscript  # noqa: F401 (torch's exporter needs it, and says so less clearly)
    except ImportError as error:
        raise Error(f"exporting needs the package {error.name}: pip install fornax[compiler]") from error
    try:
        # Unoptimised: torch would fold parameters into new constants, which `refresh` could not follow.
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about torch's own insides, and about training mode
            program = torch.onnx.export(
                module, inputs, dynamo=True, optimize=False, dynamic_shapes=dynamic_shapes,
                opset_version=20, verbose=False,
            )
    except Exception as error:  # the exporter's errors have no common class
        raise Error(f"torch cannot export the module: {_first_line(error)}") from error
    _refuse_effects(program.exported_program.graph_signature)
    own = state(module)
    n_bytes = sum(tensor.nbytes for tensor in own.values())
    program.save(path, external_data=n_bytes > _LARGEST_INLINE_BYTES)
    initializers = program.model.graph.initializers
    return {name: value.const_value.numpy() for name, value in initializers.items() if name not in own}


def _refuse_effects(signature: Any) -> None:
    changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if changed:
        names = ", ".join(changed)
        raise Error(f"the module writes to {names}, which models cannot: module.eval() may help")


def state(module: Any) -> dict[str, Any]:
    """Parameters and buffers by name, those that state dicts leave out included."""
    tensors = dict(module.named_parameters(remove_duplicate=False))
    tensors.update(module.named_buffers(remove_duplicate=False))
    return {name: tensor.detach() for name, tensor in tensors.items()}


def flags(options: Mapping[str, Any]) -> list[str]:
    """Options as the program takes them."""
    arguments: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            arguments.append(flag)
        elif isinstance(value, Mapping):
            for key, entry in value.items():
                arguments += [flag, f"{key}={_text(entry)}"]
        elif value is not None and value is not False:
            arguments += [flag, _text(value)]
    return arguments


def run_program(arguments: list[Any]) -> str:
    """Run the program and give what it prints."""
    command = [find_program(), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        message = done.stderr.strip() or f"`{' '.join(command)}` failed with status {done.returncode}"
        raise Error(message)
    return done.stdout


def find_program() -> Path:
    """The program `fornax`: of the package fornax-compiler, else where FORNAX says, else in PATH."""
    try:
        files = importlib.metadata.files("fornax-compiler") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    installed = [Path(file.locate()).resolve() for file in files if file.name == "fornax"]
    named = [Path(os.environ["FORNAX"])] if os.environ.get("FORNAX") else []
    in_path = [Path(found)] if (found := shutil.which("fornax")) else []
    for program in installed + named + in_path:
        if program.is_file():
            return program
        if program in named:
            raise Error(f"FORNAX names {program}, which is no file")
    raise Error(
        "the program `fornax` is not there: pip install fornax[compiler], or name it in the "
        "environment variable FORNAX"
    )


def device_of(tensors: Iterable[Any]) -> str:
    """Where a model of these tensors is loaded."""
    devices = {str(tensor.device) for tensor in tensors if hasattr(tensor, "device")}
    if len(devices) > 1:
        raise Error(f"parameters and inputs lie on several devices: {', '.join(sorted(devices))}")
    device = devices.pop() if devices else "cpu"
    return "emulator" if device == "cpu" else device


def _text(value: Any) -> str:
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
