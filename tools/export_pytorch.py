"""Exports KernelBench tasks at reduced size as `.pt2`, TorchScript and recorded results.

    python tools/export_pytorch.py FOLDER [TASK…]

For each task: `<task>.pt2`, `<task>.pt` (traced) and `<task>.npz` with arrays `in_0`, … and `out_0`, …, the outputs
computed by torch in double precision. `cargo run -p fornax-models --example check_recorded -- FOLDER` compares them with
what Fornax imports. Sizes of inputs are reduced as far as the task's operators allow; tasks that stay too large are left
out, by name.
"""

import dataclasses
import sys
import traceback
import types
import warnings
from pathlib import Path

import numpy
import torch

# The benchmark's tables and builders need nothing of the compiled part of the package.
package = types.ModuleType("fornax")
package.__path__ = [str(Path(__file__).resolve().parents[1] / "python" / "fornax")]
sys.modules["fornax"] = package
from fornax.bench import build, workload as tables  # noqa: E402
from fornax.bench.fill import fill, rescaled  # noqa: E402
from fornax.bench.workload import TensorSpec  # noqa: E402

#: Largest parameters, in elements, of a task that is exported.
MAX_PARAMS = 12_000_000
#: Largest number of multiplications and additions of a task that is exported.
MAX_WORK = 600_000_000


def resized(spec, sizes):
    """The input with other sizes; equal sizes stay equal."""
    shape = tuple(sizes.get(size, size) for size in spec.shape)
    return TensorSpec(spec.name, shape, spec.dtype, rescaled(spec).fill, spec.target, spec.kind)


def drawn(specs):
    inputs = []
    for spec in specs:
        tensor = torch.empty(spec.shape, dtype=build.torch_dtype(spec.dtype))
        fill(tensor, spec, 0)
        inputs.append(tensor)
    return inputs


def candidates(table):
    """Reduced inputs, the smallest first; the last is the task's own size."""
    every = {size for spec in table.inputs for size in spec.shape}
    first = {spec.shape[0] for spec in table.inputs if spec.shape}
    for limit in (12, 24, 48, 80, 160, 256):
        smaller = {size: min(size, limit) for size in every}
        yield [resized(spec, {**smaller, **dict.fromkeys(first, 2)}) for spec in table.inputs]
        yield [resized(spec, smaller) for spec in table.inputs]
    # All but the channels.
    channels = {spec.shape[1] for spec in table.inputs if len(spec.shape) > 1}
    for limit in (12, 24, 48):
        smaller = {size: min(size, limit) for size in every - channels}
        yield [resized(spec, {**smaller, **dict.fromkeys(first, 2)}) for spec in table.inputs]
    yield [resized(spec, dict.fromkeys(first - channels, 2)) for spec in table.inputs]
    yield [resized(spec, {}) for spec in table.inputs]


def work(module, inputs):
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        module(*inputs)
    return counter.get_total_flops() // 2 + 8 * sum(tensor.numel() for tensor in inputs)


def narrow(table):
    """The task with its wide layers (of 512 and more) a sixteenth as wide."""

    def narrowed(spec):
        shape = tuple(size // 16 if size >= 512 else size for size in spec.shape)
        return dataclasses.replace(spec, shape=shape)

    inputs, params = (tuple(map(narrowed, specs)) for specs in (table.inputs, table.params))
    return dataclasses.replace(table, inputs=inputs, params=params)


def export(task, folder):
    table = tables.suite()[task]
    if sum(spec.numel for spec in table.params) > MAX_PARAMS:
        table = narrow(table)
    if sum(spec.numel for spec in table.params) > MAX_PARAMS:
        return "too many parameters"
    module = build.build(table, "cpu")
    build.fill_params(table, module, 0, rescale=True)
    exact = build.build(table, "cpu", torch.float64)
    exact.load_state_dict(module.state_dict())
    error = None
    for specs in candidates(table):
        inputs = drawn(specs)
        if sum(tensor.numel() for tensor in inputs) > 8_000_000:
            continue
        try:
            if work(module, inputs) > MAX_WORK:
                continue
            outputs = exact(*[t.double() if t.is_floating_point() else t for t in inputs])
            module(*inputs)
            break
        except Exception as failed:  # whatever the operators say of these sizes
            error = failed
    else:
        return f"no small size fits ({error})" if error else "too large"
    outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    name = tables.slug(task)
    program = torch.export.export(module, tuple(inputs))
    torch.export.save(program, folder / f"{name}.pt2")
    torch.jit.trace(module, tuple(inputs), check_trace=False).save(folder / f"{name}.pt")
    arrays = {f"in_{at}": tensor.numpy() for at, tensor in enumerate(inputs)}
    arrays |= {f"out_{at}": tensor.detach().numpy() for at, tensor in enumerate(outputs)}
    numpy.savez(folder / f"{name}.npz", **arrays)
    return ""


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    done = 0
    for task in sys.argv[2:] or tables.suite():
        if (folder / f"{tables.slug(task)}.npz").exists():
            continue
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                reason = export(task, folder)
        except Exception as error:  # the exporter's failure is the task's row
            reason = traceback.format_exception_only(error)[-1].strip().splitlines()[0]
        done += not reason
        if reason:
            print(f"{task}: left out: {reason[:160]}", flush=True)
    print(f"{done} tasks exported")


if __name__ == "__main__":
    main()
