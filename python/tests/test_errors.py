"""Every refusal names what is wrong and what is wanted."""

import subprocess
import sys

import numpy as np
import pytest
from zoo import numbers

import fornax


def refusal(call, *arguments, kind=fornax.InputError, **named):
    with pytest.raises(kind) as caught:
        call(*arguments, **named)
    assert isinstance(caught.value, fornax.Error) and isinstance(caught.value, RuntimeError)
    return str(caught.value)


def test_inputs(loaded_mlp):
    x = numbers(2, 64)
    m = loaded_mlp
    assert issubclass(fornax.InputError, ValueError)
    assert refusal(m) == "the model takes 1 inputs (x), not 0"
    assert refusal(m, x, x) == "the model takes 1 inputs (x), not 2"
    assert refusal(m, z=x) == "the model has no input `z`; it has: x"
    assert refusal(m, x, x=x) == "input `x` is given twice, by position and by name"
    assert refusal(m, x.astype(np.float64)) == "input `x`: it must be float32, not float64"
    assert "element type complex64" in refusal(m, x.astype(np.complex64))
    assert "element type >f4" in refusal(m, x.astype(">f4"))
    shape = refusal(m, numbers(2, 63))
    assert shape.startswith("input `x` has shape [2, 63], the model takes [batch, 64]"), shape
    assert "input `x` has shape [64]" in refusal(m, numbers(64))
    strides = refusal(m, numbers(64, 2).T)
    assert strides.startswith("input `x`: its strides") and "ascontiguousarray" in strides
    assert refusal(m, [1.0]) == "input `x`: expected a torch tensor or a numpy array, not list"


def test_outputs(loaded_mlp):
    x = numbers(2, 64)
    m = loaded_mlp
    wrong = refusal(m, x, out=np.empty((2, 11), np.float32))
    assert wrong == "output `y`: it must be float32[2, 10], not float32[2, 11]"
    assert "not float64[2, 10]" in refusal(m, x, out=np.empty((2, 10)))
    assert "strides" in refusal(m, x, out=np.empty((10, 2), np.float32).T)
    fixed = np.empty((2, 10), np.float32)
    fixed.flags.writeable = False
    assert refusal(m, x, out=fixed) == "output `y`: it is read-only"
    assert "the model has 1 outputs (y), not 2" in refusal(m, x, out=(fixed, fixed))


def test_files(tmp_path, mlp):
    load = fornax.load
    missing = refusal(load, tmp_path / "none.fnx", device="emulator", kind=fornax.Error)
    assert "none.fnx" in missing and "No such file" in missing
    other = tmp_path / "other.fnx"
    other.write_bytes(b"no bundle at all")
    assert "not a Fornax bundle" in refusal(load, other, device="emulator", kind=fornax.Error)
    damaged = tmp_path / "damaged.fnx"
    damaged.write_bytes(mlp.read_bytes()[:-100])
    refusal(load, damaged, device="emulator", kind=fornax.Error)


def test_devices(mlp):
    name = refusal(fornax.load, mlp, device="gpu", kind=fornax.Error)
    assert name == "`gpu` is not a device: expected emulator, cuda or cuda:<index>"
    none = refusal(fornax.load, mlp, device="cuda:9999", kind=fornax.Error)
    assert none.startswith("CUDA is not available: ")
    target = refusal(fornax.load, mlp, device="emulator", target="sm_100a", kind=fornax.Error)
    assert "sm_80" in target


def test_importing_loads_neither_torch_nor_onnx():
    code = "import sys, fornax; print([m for m in ('torch', 'onnx') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
