"""Models on the emulator against onnxruntime, from numpy to numpy."""

import gc
import threading

import numpy as np
import pytest
from zoo import assert_close, numbers, reference

import fornax


def inputs_of(name, batch):
    shapes = {
        "mlp": [(batch, 64)],
        "resnet_block": [(batch, 3, 32, 32)],
        "transformer_block": [(batch, 24, 64)],
        "depthwise_cnn": [(batch, 3, 16, 16)],
    }
    if name == "recommender":
        return numbers(batch, 13), np.random.default_rng(1).integers(0, 200, (batch, 4, 5))
    return tuple(numbers(*shape) for shape in shapes[name])


@pytest.mark.parametrize(
    "name", ["mlp", "resnet_block", "transformer_block", "depthwise_cnn", "recommender"]
)
def test_zoo_models(compiled, name):
    model = fornax.load(compiled(name, "--dim", "batch=2"), device="emulator")
    inputs = inputs_of(name, 2)
    before = [value.copy() for value in inputs]
    assert_close(model(*inputs), reference(name, *inputs)[0])
    for value, kept in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(value, kept)


def test_a_batch_of_any_size(loaded_mlp):
    for batch in [1, 5, 64, 5]:
        x = numbers(batch, 64, seed=batch)
        assert_close(loaded_mlp(x), reference("mlp", x)[0])


def test_inputs_by_name_and_outputs_given(compiled, loaded_mlp):
    x = numbers(3, 64)
    out = np.full((3, 10), np.nan, np.float32)
    assert loaded_mlp(x=x, out=out) is out
    assert_close(out, reference("mlp", x)[0])
    again = np.full_like(out, np.nan)
    assert loaded_mlp(x, out=(again,)) is again
    np.testing.assert_array_equal(again, out)

    recommender = fornax.load(compiled("recommender", "--dim", "batch=2"), device="emulator")
    dense, indices = inputs_of("recommender", 2)
    expected = reference("recommender", dense, indices)[0]
    assert_close(recommender(dense, x1=indices), expected)
    assert_close(recommender(x1=indices, x0=dense), expected)


def test_a_model_describes_itself(loaded_mlp, mlp):
    assert loaded_mlp.inputs == [("x", "float32", ("batch", 64))]
    assert loaded_mlp.outputs == [fornax.TensorSpec("y", "float32", ("batch", 10))]
    weights = {weight.name: weight.shape for weight in loaded_mlp.weights}
    assert weights["layers.0.weight"] == (128, 64) and weights["layers.4.bias"] == (10,)
    assert loaded_mlp.device == "emulator" and loaded_mlp.target == "sm_80"
    assert loaded_mlp.precision in ("ieee", "fp32")
    nodes = {node for kernel in loaded_mlp.kernels for node in kernel.nodes}
    assert len(loaded_mlp.kernels) >= 1 and any("linear" in node for node in nodes)
    n_weights = sum(np.prod(shape) for shape in weights.values())
    assert loaded_mlp.memory.weights >= 4 * n_weights and loaded_mlp.memory.borrowed == 0
    loaded_mlp(numbers(2, 64))
    small = loaded_mlp.memory.scratch
    loaded_mlp(numbers(64, 64))
    assert loaded_mlp.memory.scratch > small > 0
    text = repr(loaded_mlp)
    assert "x: f32[batch, 64]" in text and "emulator (sm_80)" in text


def test_several_threads_call_one_model(loaded_mlp):
    inputs = [numbers(1 + index, 64, seed=index) for index in range(4)]
    expected = [reference("mlp", x)[0] for x in inputs]
    failures = []

    def work(index):
        try:
            for _ in range(3):
                assert_close(loaded_mlp(inputs[index]), expected[index])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_results_outlive_the_model(mlp):
    model = fornax.load(mlp, device="emulator")
    x = numbers(2, 64)
    y = model(x)
    del model
    gc.collect()
    assert_close(y, reference("mlp", x)[0])
