"""Models of the zoo: what onnxruntime computes with them, and the program that compiles them."""

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

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
