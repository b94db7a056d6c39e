"""Bundles of the zoo's models, and what onnxruntime computes."""

import os
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import fornax

ROOT = Path(__file__).resolve().parent.parent.parent
ZOO = ROOT / "models/zoo"


def absent(reason):
    """Skip, or fail where everything must be there (see tools/test). torch is never asked for: it is
    a download of a gigabyte."""
    if os.environ.get("FORNAX_REQUIRE_ALL"):
        pytest.fail(reason)
    pytest.skip(reason)


@cache
def find_program():
    program = Path(os.environ.get("FORNAX", ROOT / "target/debug/fornax"))
    return program if program.is_file() else None


@pytest.fixture(scope="session")
def program():
    if find_program() is None:
        absent("there is no target/debug/fornax: cargo build -p fornax-compiler, or set FORNAX")
    return find_program()


@pytest.fixture(scope="session")
def compiled(program, tmp_path_factory):
    """Compiles a model of the zoo, once per set of options."""
    folder = tmp_path_factory.mktemp("bundles")

    @cache
    def compile_model(name, *options):
        bundle = folder / f"{len(list(folder.iterdir()))}.fnx"
        command = [program, "compile", ZOO / f"{name}.onnx", "-o", bundle, "--target", "sm_80", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return bundle

    return compile_model


@pytest.fixture(scope="session")
def mlp(compiled):
    """A bundle with its weights inside and a batch of any size."""
    return compiled("mlp")


@pytest.fixture(scope="session")
def open_mlp(compiled):
    """A bundle without its weights."""
    return compiled("mlp", "--weights", "external")


@pytest.fixture
def loaded_mlp(mlp):
    return fornax.load(mlp, device="emulator")


def zoo_weights(name):
    onnx = pytest.importorskip("onnx")
    graph = onnx.load(ZOO / f"{name}.onnx").graph
    return {tensor.name: onnx.numpy_helper.to_array(tensor).copy() for tensor in graph.initializer}


def reference(name, *inputs):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(ZOO / f"{name}.onnx", providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def assert_close(actual, expected):
    """Equal up to rounding: fp32 sums of a few thousand terms, and functions within a few ulp."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
