"""With torch on the CPU: tensors of the host on the emulator, compiling modules, the backend.

Skipped where torch is not installed: it is a download of a gigabyte, and not part of CI.
"""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from zoo import assert_close, numbers, reference, zoo_weights

import fornax

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

exporting = pytest.mark.skipif(
    not all(map(__import__("importlib.util").util.find_spec, ["onnx", "onnxscript"])),
    reason="exporting needs onnx and onnxscript",
)


@pytest.fixture
def fornax_program(program, monkeypatch):
    monkeypatch.setenv("FORNAX", str(program))


def test_tensors_of_the_host(loaded_mlp):
    x = torch.from_numpy(numbers(3, 64))
    y = loaded_mlp(x)
    assert isinstance(y, torch.Tensor) and y.dtype == torch.float32
    assert_close(y.numpy(), reference("mlp", x.numpy())[0])
    out = torch.full((3, 10), torch.nan)
    assert loaded_mlp(x, out=out) is out
    assert torch.equal(out, y)
    with pytest.raises(fornax.InputError, match=r"input `x`: its strides .*`\.contiguous\(\)` helps"):
        loaded_mlp(torch.empty(64, 3).T)
    with pytest.raises(fornax.InputError, match="must be float32, not float64"):
        loaded_mlp(x.double())
    with pytest.raises(fornax.InputError, match="tensors on meta have no memory"):
        loaded_mlp(x.to("meta"))


def test_tensors_of_older_versions_of_torch(mlp):
    """Before 2.10 tensors are read attribute by attribute."""
    code = f"""
import torch, fornax
if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    del torch.Tensor.__dlpack_c_exchange_api__
m = fornax.load({str(mlp)!r}, device="emulator")
y = m(torch.ones(3, 64))
assert y.shape == (3, 10) and torch.allclose(y.sum(dim=1), torch.ones(3))
for wrong in (torch.ones(64, 3).T, torch.ones(3, 64).double(), torch.ones(3, 63), torch.ones(64)):
    try:
        m(wrong)
    except fornax.InputError:
        continue
    raise AssertionError(wrong.shape)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_element_types_of_torch(mlp):
    model = fornax.load(mlp, device="emulator")
    for name in ["float64", "float16", "bfloat16", "int64", "uint8", "bool", "float8_e4m3fn"]:
        x = torch.empty(2, 64, dtype=getattr(torch, name))
        with pytest.raises(fornax.InputError, match=f"must be float32, not {name}$"):
            model(x)
    with pytest.raises(fornax.InputError, match="element type torch.complex64 is none"):
        model(torch.empty(2, 64, dtype=torch.complex64))
    with pytest.raises(fornax.InputError, match="sparse tensors are not taken"):
        model(torch.eye(64).to_sparse())


def test_weights_from_a_state_dict(open_mlp):
    state = {name: torch.from_numpy(value) for name, value in zoo_weights("mlp").items()}
    model = fornax.load(open_mlp, state, device="emulator")
    x = numbers(2, 64)
    before = model(x)
    assert_close(before, reference("mlp", x)[0])
    state["layers.4.bias"] += 1.0  # the same for all logits
    model.refresh()
    assert_close(model(x), before)
    state["layers.4.weight"].zero_()
    state["layers.4.bias"].zero_()
    model.refresh()
    assert_close(model(x), np.full((2, 10), 0.1, np.float32))


class Small(torch.nn.Module):
    """A layer, a buffer and a constant."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 16)
        self.register_buffer("scale", torch.arange(16.0))

    def forward(self, x):
        y = torch.relu(self.layer(x)) * self.scale
        return y, y.sum(dim=-1)


@exporting
def test_compile(fornax_program, tmp_path):
    torch.manual_seed(0)
    module, x = Small(), torch.randn(4, 8)
    model = fornax.compile(module, x, tmp_path / "small.fnx", precision="ieee", target="sm_80")
    assert (tmp_path / "small.fnx").is_file() and model.device == "emulator"
    assert model.precision == "ieee"
    for _ in range(2):
        with torch.no_grad():
            expected = module(x)
        result = model(x)
        assert isinstance(result, tuple)
        torch.testing.assert_close(result, tuple(expected))
        with torch.no_grad():
            module.layer.weight *= -0.5
            module.scale += 1
        model.refresh()


@exporting
def test_compile_says_what_it_cannot_do(fornax_program, monkeypatch):
    class Unknown(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.svd(x)[0]

    with pytest.raises(fornax.Error):
        fornax.compile(Unknown(), torch.randn(4, 4))
    norm = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    with pytest.raises(fornax.Error, match=r"writes to .*running_mean.*module\.eval\(\) may help"):
        fornax.compile(norm, torch.randn(4, 4))
    with pytest.raises(fornax.Error, match="--precision"):
        fornax.compile(Small(), torch.randn(4, 8), precision="fp3")
    monkeypatch.setenv("FORNAX", "/nowhere/fornax")
    with pytest.raises(fornax.Error, match="FORNAX names /nowhere/fornax, which is no file"):
        fornax.compile(Small(), torch.randn(4, 8))


@exporting
def test_backend(fornax_program):
    torch._dynamo.reset()
    torch.manual_seed(0)
    module, x = Small(), torch.randn(4, 8)
    compiled = torch.compile(module, backend="fornax", options={"target": "sm_80"})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", fornax_fallback())
        torch.testing.assert_close(compiled(x), module(x))
        torch.testing.assert_close(compiled(2 * x), module(2 * x))
        module.layer.weight *= -0.5
        torch.testing.assert_close(compiled(x), module(x))
        module.scale.data = module.scale + 1
        torch.testing.assert_close(compiled(x), module(x))
        model_of_other = torch.compile(other := Small(), backend="fornax", options={"target": "sm_80"})
        for _ in range(2):
            torch.testing.assert_close(model_of_other(x), other(x))
            torch.testing.assert_close(compiled(x), module(x))


@exporting
def test_backend_falls_back_to_eager(fornax_program):
    torch._dynamo.reset()
    module, x = Small(), torch.randn(4, 8)
    compiled = torch.compile(module, backend="fornax")
    with pytest.warns(fornax_fallback(), match="gradients are wanted"):
        compiled(x)[1].sum().backward()
    assert module.layer.weight.grad is not None

    def unknown(x):
        return torch.linalg.svd(x)[1]

    square = torch.randn(4, 4)
    with pytest.warns(fornax_fallback(), match="runs in eager mode"), torch.no_grad():
        result = torch.compile(unknown, backend="fornax")(square)
    torch.testing.assert_close(result, unknown(square))


def fornax_fallback():
    from fornax._dynamo import FallbackWarning

    return FallbackWarning
