"""Planted cheats: each must be caught by the checks, and an honest subject must pass."""

import gc

import pytest

torch = pytest.importorskip("torch", reason="the benchmark needs torch")

from fornax.bench import workload  # noqa: E402
from fornax.bench.check import Checker, Subject  # noqa: E402
from fornax.bench.problem import TableProblem  # noqa: E402
from fornax.bench.runner import TorchRunner  # noqa: E402
from fornax.bench.tracks import TRACKS  # noqa: E402
from tiny_task import TINY  # noqa: E402


class Honest:
    """Computes the task, into the given outputs. Cheats change one thing about it."""

    name = "planted"
    prepare_s = 0.0

    def __init__(self, problem):
        self.module = problem.module
        self.calls = 0

    def __call__(self, inputs, out=None):
        self.calls += 1
        result = self.compute(inputs)
        if out is None:
            return [result]
        self.write(out[0], result)
        return out

    def compute(self, inputs):
        with torch.no_grad():
            return self.module(*inputs)

    def write(self, out, result):
        out.copy_(result)

    def refresh(self):
        pass


class ReturnsZeros(Honest):
    def compute(self, inputs):
        return torch.zeros_like(super().compute(inputs))


class ReturnsNearlyZeros(Honest):
    """Within 1e-2 of a small result in every element."""

    def compute(self, inputs):
        return 5e-3 * torch.ones_like(super().compute(inputs))


class ReturnsTheFirstResult(Honest):
    stored = None

    def compute(self, inputs):
        if self.stored is None:
            self.stored = super().compute(inputs)
        return self.stored


class ReturnsTheThirdResultFromThenOn(ReturnsTheFirstResult):
    """Honest while it is checked before the timing."""

    def compute(self, inputs):
        return Honest.compute(self, inputs) if self.calls < 3 else super().compute(inputs)


class SkipsTheTail(Honest):
    def write(self, out, result):
        out.view(-1)[:-1].copy_(result.view(-1)[:-1])


class ReturnsTheReference(Honest):
    """Looks for a tensor that holds the answer: the reference's, or one of eager mode."""

    def compute(self, inputs):
        right = super().compute(inputs)
        for candidate in gc.get_objects():
            if type(candidate) is torch.Tensor and candidate.shape == right.shape:
                if candidate is not right and torch.allclose(candidate.float(), right):
                    return candidate.float()
        return torch.full_like(right, 3.0)


class ChangesItsInputs(Honest):
    def compute(self, inputs):
        result = super().compute(inputs)
        inputs[0][0, 0] += 1
        return result


class SwapsItsInputs(Honest):
    """Leaves the sum of the inputs as it is."""

    def compute(self, inputs):
        result = super().compute(inputs)
        inputs[0].copy_(inputs[0].flip(0))
        return result


class LosesPrecision(Honest):
    """Half precision passes track A, not track B."""

    def compute(self, inputs):
        return super().compute([tensor.half().float() for tensor in inputs])


class Fails(Honest):
    def compute(self, inputs):
        raise RuntimeError("out of registers")


class IgnoresWeights(Honest):
    """Keeps the bias, all that matters while inputs and weights are tiny, from before."""

    def __init__(self, problem):
        super().__init__(problem)
        self.bias = problem.module.layer.bias.clone()

    def compute(self, inputs):
        return self.bias.relu().expand(4, 6)


def run(problem, runner, track):
    subject = Subject(runner, TRACKS[track])
    checker = Checker(problem, [subject], TorchRunner(problem.module, "eager"))
    checker.before_timing(seeds=2)
    if not subject.finding.fault:
        for _ in range(5):
            runner(problem.inputs)
        checker.after_timing()
    return subject.finding


@pytest.mark.parametrize("track", ["A", "B"])
def test_an_honest_subject_passes(tiny, track):
    finding = run(tiny, Honest(tiny), track)
    assert finding.fault == ""
    assert finding.error.norm < 1e-6


@pytest.mark.parametrize("track", ["A", "B"])
@pytest.mark.parametrize(
    ("cheat", "fault"),
    [
        (ReturnsZeros, "error 1.00e"),
        (ReturnsNearlyZeros, "in the norm"),
        (ReturnsTheFirstResult, "in the norm"),
        (ReturnsTheThirdResultFromThenOn, "in the norm"),
        (SkipsTheTail, "not written"),
        (ReturnsTheReference, "in the norm"),
        (ChangesItsInputs, "changes its inputs"),
        (SwapsItsInputs, "changes its inputs"),
        (Fails, "out of registers"),
    ],
)
def test_cheats_are_caught(tiny, track, cheat, fault):
    assert fault in run(tiny, cheat(tiny), track).fault


def test_precision_is_matched_in_track_b_only(tiny):
    assert run(tiny, LosesPrecision(tiny), "A").fault == ""
    assert "in the norm" in run(tiny, LosesPrecision(tiny), "B").fault


def insensitive():
    """A task whose result is its bias but for 1e-6: a stored answer would pass on its own inputs."""
    weight = {**TINY["params"][0], "fill": ["uniform", -1e-7, 1e-7]}
    problem = TableProblem(workload.parse({**TINY, "params": [weight, TINY["params"][1]]}), "cpu")
    problem.allocate()
    return problem


def test_insensitive_tasks_are_checked_on_rescaled_weights():
    problem = insensitive()
    finding = run(problem, Honest(problem), "A")
    assert finding.fault == ""
    assert any("rescaled" in note for note in finding.notes)
    assert "in the norm" in run(problem, IgnoresWeights(problem), "A").fault
    weight = problem.module.layer.weight
    assert weight.abs().max() <= 1e-7, "the task's own weights are back"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="streams need a GPU")
@pytest.mark.parametrize("wait", [False, True])
def test_work_on_another_stream_is_caught(wait):
    n = 1 << 12
    table = {
        **TINY,
        "inputs": [
            {"name": "x", "shape": [n, n], "dtype": "float32", "fill": ["uniform", 0.0, 1.0]}
        ],
        "params": [],
        "nodes": [
            {
                "name": "y",
                "op": "aten.matmul.default",
                "args": [{"ref": "x"}, {"ref": "x"}],
                "out": {"shape": [n, n], "dtype": "float32"},
            }
        ],
        "outputs": [{"ref": "y"}],
    }
    problem = TableProblem(workload.parse(table), "cuda:0")
    problem.allocate()
    other = torch.cuda.Stream()

    class OnAnotherStream(Honest):
        def __call__(self, inputs, out=None):
            if wait:
                other.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(other):
                return super().__call__(inputs, out)

    assert run(problem, Honest(problem), "B").fault == ""
    assert "stream" in run(problem, OnAnotherStream(problem), "B").fault
