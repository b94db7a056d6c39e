"""Weights given at load, and their changes."""

import struct

import json

import numpy as np
import pytest
from zoo import assert_close, numbers, reference, zoo_weights

import fornax


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, value in tensors.items():
        start = len(data)
        data += value.tobytes()
        offsets = [start, len(data)]
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": offsets}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_from_arrays_and_from_a_file(open_mlp, tmp_path):
    weights = zoo_weights("mlp")
    x = numbers(4, 64)
    expected = reference("mlp", x)[0]
    # A state may hold more than the graph uses.
    given = {**weights, "layers.9.num_batches_tracked": np.int64(3)}
    assert_close(fornax.load(open_mlp, given, "emulator")(x), expected)
    path = tmp_path / "w.safetensors"
    write_safetensors(path, weights)
    assert_close(fornax.load(open_mlp, path, device="emulator")(x), expected)
    assert_close(fornax.load(open_mlp, str(path), device="emulator")(x), expected)


def test_refresh_follows_changes_in_place(open_mlp):
    weights = zoo_weights("mlp")
    model = fornax.load(open_mlp, weights, "emulator")
    x = numbers(4, 64)
    before = model(x)
    weights["layers.4.bias"][3] += 2.0
    np.testing.assert_array_equal(model(x), before)
    model.refresh()
    after = model(x)
    # A softmax: adding to one logit multiplies its share.
    shares = before * np.where(np.arange(10) == 3, np.exp(np.float32(2)), 1).astype(np.float32)
    assert_close(after, shares / shares.sum(axis=1, keepdims=True))

    model.refresh({"layers.4.bias": zoo_weights("mlp")["layers.4.bias"]})
    assert_close(model(x), before)
    model.refresh()
    assert_close(model(x), before)


def test_refusals(open_mlp, mlp, tmp_path):
    weights = zoo_weights("mlp")

    def refusal(bundle, weights, kind=fornax.InputError):
        with pytest.raises(kind) as caught:
            fornax.load(bundle, weights, "emulator")
        return str(caught.value)

    some = {name: value for name, value in weights.items() if name != "layers.2.bias"}
    missing = refusal(open_mlp, some)
    assert missing == "the bundle leaves these weights to be given at load: layers.2.bias"
    assert "layers.0.weight" in refusal(open_mlp, None)
    short = refusal(open_mlp, {**weights, "layers.2.bias": np.zeros(95, np.float32)})
    assert short == "weight `layers.2.bias`: it is f32[96], not f32[95]"
    turned = {**weights, "layers.0.weight": np.zeros((64, 128), np.float32).T}
    assert "`numpy.ascontiguousarray(...)` helps" in refusal(open_mlp, turned)
    assert "embedded in the bundle" in refusal(mlp, weights)
    path = tmp_path / "w.safetensors"
    path.write_bytes(b"nothing")
    assert str(path) in refusal(open_mlp, path, kind=fornax.Error)

    model = fornax.load(open_mlp, weights, "emulator")
    with pytest.raises(fornax.InputError):
        model.refresh({"layers.2.bias": np.zeros(95, np.float32)})
    x = numbers(1, 64)
    assert_close(model(x), reference("mlp", x)[0])
