"""Checks the package on a machine with a GPU and torch, and measures what a call costs the host.

    python python/tests/gpu_check.py FOLDER [RESULT.json]

FOLDER holds the zoo's mlp.onnx and resnet_block.onnx and, compiled from them on any machine,

    fornax compile mlp.onnx -o mlp.fnx
    fornax compile mlp.onnx -o mlp_open.fnx --weights external
    fornax compile resnet_block.onnx -o resnet.fnx --dim batch=8

Needs no pytest; the program `fornax`, onnxscript and torchvision for what is compiled on the spot.
"""

import json
import statistics
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path

import torch

import fornax
from fornax._dynamo import FallbackWarning

FOLDER = Path(sys.argv[1])
CHECKS = []
RESULTS = {}
DEVICE = torch.device("cuda:0")


def check(function):
    CHECKS.append(function)
    return function


class Mlp(torch.nn.Module):
    """The zoo's mlp."""

    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.layers = nn.Sequential(
            nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 96), nn.ReLU(), nn.Linear(96, 10)
        )

    def forward(self, x):
        return torch.softmax(self.layers(x), dim=-1)


def onnx_weights(name):
    import onnx

    graph = onnx.load(FOLDER / f"{name}.onnx").graph
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor).copy() for tensor in graph.initializer}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def mlp_module():
    module = Mlp()
    module.load_state_dict(onnx_weights("mlp"))
    return module.to(DEVICE).eval().requires_grad_(False)


def resnet(x):
    """The zoo's resnet_block from its ONNX file, batch norms folded as they are there."""
    w = {name: value.to(DEVICE) for name, value in onnx_weights("resnet_block").items()}
    conv = torch.nn.functional.conv2d

    def layer(x, name, stride=1, padding=1):
        return conv(x, w[f"{name}.weight"], w[f"{name}.weight_bias"], stride, padding)

    x = torch.nn.functional.max_pool2d(layer(x, "stem.0").relu(), 2)
    x = torch.relu(layer(layer(x, "first.0").relu(), "first.3") + x)
    y = layer(layer(x, "second.0", 2).relu(), "second.3")
    x = torch.relu(y + layer(x, "project.0", 2, 0))
    return x.mean(dim=(2, 3)) @ w["head.weight"].T + w["head.bias"]


def close(actual, expected, tolerance=2e-5):
    error = (actual.double() - expected.double()).norm() / expected.double().norm()
    assert error <= tolerance, f"relative error {error:.2e}"


def numbers(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(DEVICE)


@check
def captured_before_any_other_call():
    """The very first call of a model may be in a capture: nothing is allocated or loaded late."""
    model, module = fornax.load(FOLDER / "resnet.fnx"), resnet
    x = numbers(8, 3, 32, 32)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)
    for seed in (1, 2):
        x.copy_(numbers(8, 3, 32, 32, seed=seed))
        y.fill_(torch.nan)
        graph.replay()
        close(y, module(x))


@check
def values():
    module, model = mlp_module(), fornax.load(FOLDER / "mlp.fnx")
    for batch in (1, 7, 64):
        x = numbers(batch, 64, seed=batch)
        close(model(x), module(x))
    x = numbers(8, 3, 32, 32)
    close(fornax.load(FOLDER / "resnet.fnx")(x), resnet(x))
    out = torch.full((64, 10), torch.nan, device=DEVICE)
    x = numbers(64, 64)
    assert model(x, out=out) is out and model(x=x, out=(out,)) is out
    close(out, module(x))


@check
def the_current_stream_is_used():
    model, module = fornax.load(FOLDER / "mlp.fnx"), mlp_module()
    x, late = torch.zeros(64, 64, device=DEVICE), numbers(64, 64)
    expected = module(late)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # about a tenth of a second
        x.copy_(late)  # on another stream the model would still read zeros
        started = time.perf_counter()
        y = model(x)
        took = time.perf_counter() - started
        assert not stream.query(), "the call waited for the stream"
    assert took < 0.05, f"the call took {took:.3f} s"
    torch.cuda.synchronize()
    close(y, expected)


@check
def graphs_of_a_side_stream_replay():
    model, module = fornax.load(FOLDER / "mlp.fnx"), mlp_module()
    x = numbers(64, 64)
    warm = model(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        y = model(model_input := x * 1.0)
        z = model(model_input) + y
    for seed in range(3):
        x.copy_(numbers(64, 64, seed=seed + 5))
        other = model(numbers(64, 64, seed=99))  # calls outside the graph do not disturb it
        graph.replay()
        torch.cuda.synchronize()
        close(y, module(x))
        close(z, 2 * module(x))
        close(other, module(numbers(64, 64, seed=99)))
    close(warm, module(numbers(64, 64)))


@check
def weights_are_bound_by_pointer_and_refreshed():
    module = mlp_module()
    before = torch.cuda.mem_get_info()[0]
    model = fornax.load(FOLDER / "mlp_open.fnx", module.state_dict())
    memory = model.memory
    assert memory.weights == 0, memory
    assert memory.borrowed == 4 * sum(p.numel() for p in module.parameters()), memory
    RESULTS["bytes taken by loading with bound weights"] = before - torch.cuda.mem_get_info()[0]
    x = numbers(16, 64)
    close(model(x), module(x))
    module.layers[0].weight.mul_(-0.5)
    module.layers[4].bias[2] += 3
    model.refresh()
    close(model(x), module(x))
    host = {name: value.cpu() for name, value in module.state_dict().items()}
    copied = fornax.load(FOLDER / "mlp_open.fnx", host)
    assert copied.memory.weights >= memory.borrowed and copied.memory.borrowed == 0
    close(copied(x), module(x))
    kept = fornax.load(FOLDER / "mlp_open.fnx", mlp_module().state_dict())
    filler = [torch.full((1 << 20,), torch.nan, device=DEVICE) for _ in range(8)]
    close(kept(x), mlp_module()(x))
    del filler


@check
def two_threads():
    model, module = fornax.load(FOLDER / "mlp.fnx"), mlp_module()
    failures = []

    def work(seed):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                x = numbers(32 + seed, 64, seed=seed)
                expected = module(x)
                for _ in range(200):
                    close(model(x), expected)
        except BaseException:
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


@check
def errors():
    model = fornax.load(FOLDER / "mlp.fnx")
    x = numbers(4, 64)

    def refused(*arguments, **named):
        try:
            model(*arguments, **named)
        except fornax.InputError as error:
            return str(error)
        raise AssertionError("it was taken")

    assert "the model takes 1 inputs (x), not 2" in refused(x, x)
    assert "it must be float32, not float16" in refused(x.half())
    assert "`.to(\"cuda:0\")` helps" in refused(x.cpu())
    assert "numpy array" in refused(x.cpu().numpy())
    assert "`.contiguous()` helps" in refused(numbers(64, 4).T)
    assert "[4, 63]" in refused(numbers(4, 63))
    assert "not a multiple of 16" in refused(numbers(4 * 64 + 1)[1:].view(4, 64))
    assert "overlaps" in refused(x, out=x.view(-1)[:40].view(4, 10))
    assert "float32[4, 10]" in refused(x, out=torch.empty(4, 11, device=DEVICE))
    model(x)  # still usable
    try:
        fornax.load(FOLDER / "mlp.fnx", device="cuda:77")
    except fornax.Error as error:
        assert "there is no device 77" in str(error), error
    else:
        raise AssertionError("a device that is not there was opened")


@check
def modules_compile_on_this_machine():
    module, x = mlp_module(), numbers(16, 64)
    model = fornax.compile(module, x, precision="ieee")
    assert model.memory.weights == 0, "parameters are used where they are"
    close(model(x), module(x))
    module.layers[0].weight.mul_(-0.5)
    model.refresh()
    close(model(x), module(x))
    net = torchvision_net()
    image = numbers(2, 3, 64, 64)
    close(fornax.compile(net, image)(image), net(image))
    open_batch = torch.export.Dim("batch", min=1, max=64)
    model = fornax.compile(module, x, dynamic_shapes=({0: open_batch},))
    for batch in (1, 5, 64):
        x = numbers(batch, 64)
        close(model(x), module(x))


def torchvision_net():
    import torchvision

    torch.manual_seed(0)
    return torchvision.models.resnet18(weights=None).to(DEVICE).eval().requires_grad_(False)


@check
def torch_compile_takes_the_backend():
    module, net = mlp_module(), torchvision_net()
    image = numbers(2, 3, 64, 64)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        compiled = torch.compile(module, backend="fornax", dynamic=False)
        for seed in (1, 2):
            x = numbers(16, 64, seed=seed)
            close(compiled(x), module(x))
        module.layers[2].bias.add_(1)
        close(compiled(x), module(x))
        close(torch.compile(net, backend="fornax", dynamic=False)(image), net(image))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        complex_numbers = torch.compile(lambda x: torch.fft.fft(x).abs(), backend="fornax")
        close(complex_numbers(x), torch.fft.fft(x).abs())
    assert any(w.category is FallbackWarning for w in caught), "no word of eager mode"


@check
def host_cost():
    """Microseconds of the host per call: alone, after a wait (median of 1000), and 50 in a row, which the
    queue of a stream takes without blocking (median of 20). Calls of torch stand beside it."""
    small = torch.zeros(1, 64, device=DEVICE)
    model = fornax.load(FOLDER / "mlp.fnx")
    module, out = mlp_module(), torch.empty(1, 10, device=DEVICE)
    net, image = fornax.load(FOLDER / "resnet.fnx"), numbers(8, 3, 32, 32)
    compiled = torch.compile(module)
    cases = {
        f"mlp ({len(model.kernels)} kernels)": lambda: model(small),
        f"mlp into out ({len(model.kernels)} kernels)": lambda: model(small, out=out),
        f"resnet_block ({len(net.kernels)} kernels)": lambda: net(image),
        "torch mlp, eager": lambda: module(small),
        "torch mlp, torch.compile": lambda: compiled(small),
        "torch matmul": lambda: torch.mm(small, small.T),
        "torch.empty": lambda: torch.empty(1, 10, device=DEVICE),
    }
    for name, call in cases.items():
        for _ in range(20):
            call()
        RESULTS[f"host us, alone: {name}"] = statistics.median(timed(call, 1) for _ in range(1000))
        RESULTS[f"host us, in a row: {name}"] = statistics.median(timed(call, 50) for _ in range(20))


def timed(call, n_calls):
    torch.cuda.synchronize()
    started = time.perf_counter_ns()
    for _ in range(n_calls):
        call()
    return (time.perf_counter_ns() - started) / 1000 / n_calls


def main():
    failed = 0
    # The bundles are compiled for fp32.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    with torch.no_grad():
        for function in CHECKS:
            started = time.perf_counter()
            try:
                function()
                outcome = "ok"
            except BaseException:
                failed += 1
                outcome = "FAILED\n" + traceback.format_exc()
            print(f"{function.__name__}: {outcome} ({time.perf_counter() - started:.2f} s)", flush=True)
    for name, value in RESULTS.items():
        print(f"{name}: {value:.2f}")
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(json.dumps(RESULTS, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
