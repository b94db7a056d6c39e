"""Runs an ONNX model with onnxruntime on seeded inputs and records inputs and outputs.

    python tools/record.py MODEL.onnx OUT.npz [INPUT=SIZES[:LOW..HIGH]]...

SIZES are comma-separated; integers are drawn from LOW..HIGH (ends included, 0..1 unless said), floats
uniformly from LOW..HIGH or else normally. OUT.npz holds every input and output under its name.
"""

import sys

import numpy
import onnxruntime

DTYPES = {
    "tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16",
    "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(int16)": "int16", "tensor(int8)": "int8",
    "tensor(uint64)": "uint64", "tensor(uint32)": "uint32", "tensor(uint16)": "uint16",
    "tensor(uint8)": "uint8", "tensor(bool)": "bool",
}


def parse(argument):
    name, _, rest = argument.rpartition("=")
    sizes, _, limits = rest.partition(":")
    low, high = map(float, limits.split("..")) if limits else (None, None)
    return name, [int(size) for size in sizes.split(",") if size], low, high


def draw(random, dtype, shape, low, high):
    if numpy.issubdtype(dtype, numpy.floating):
        if low is None:
            return random.standard_normal(shape).astype(dtype)
        return random.uniform(low, high, shape).astype(dtype)
    return random.integers(int(low or 0), int(1 if high is None else high) + 1, shape).astype(dtype)


def main(model, out, arguments):
    given = {name: rest for name, *rest in map(parse, arguments)}
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    random = numpy.random.default_rng(0)
    inputs = {}
    for port in session.get_inputs():
        shape, low, high = given.get(port.name, [port.shape, None, None])
        if not all(isinstance(size, int) for size in shape):
            sys.exit(f"record: give the shape of `{port.name}` {port.shape}: {port.name}=SIZES")
        inputs[port.name] = draw(random, numpy.dtype(DTYPES[port.type]), shape, low, high)
    names = [port.name for port in session.get_outputs()]
    outputs = dict(zip(names, session.run(names, inputs)))
    numpy.savez(out, **inputs, **outputs)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
