"""One model against torch: `python -m fornax.bench MODEL`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from . import workload as tables
from .workload import BenchError


@dataclass(frozen=True)
class Options:
    """What to compare and how. `device` is `cuda:0` or `emulator`; `bundle` is compiled unless given.

    `dims`: values of an ONNX model's symbolic sizes.
    """

    model: str
    against: tuple[str, ...]
    track: str = "B"
    device: str = "cuda:0"
    bundle: Path | None = None
    precision: str = ""
    seeds: int = 2
    budget_s: float = 5.0
    dims: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Comparison:
    """What came out: the finding of the checks, times by subject, and seconds each took to prepare."""

    name: str
    track: str
    fault: str
    error: float
    eager_error: float
    notes: list[str]
    times: dict[str, Any]
    prepare_s: dict[str, float]
    floor_ms: float | None
    skipped: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """A table for people."""
        lines = [
            f"{self.name}, track {self.track}: "
            + (f"WRONG: {self.fault}" if self.fault else "correct")
            + f", error {self.error:.2e} (eager {self.eager_error:.2e})",
            *self.notes,
            f"{'subject':<18}{'cold ms':>10}{'quartiles':>20}{'warm ms':>10}{'wall ms':>10}"
            f"{'prepare s':>11}{'speed-up':>10}",
        ]
        ours = self.times.get("fornax")
        for name, times in self.times.items():
            cold = times.cold
            gain = f"{cold.median / ours.cold.median:.2f}" if ours else ""
            lines.append(
                f"{name:<18}{cold.median:>10.4f}{f'{cold.lower:.4f}..{cold.upper:.4f}':>20}"
                f"{times.warm.median:>10.4f}{times.wall.median:>10.4f}"
                f"{self.prepare_s[name]:>11.2f}{gain:>10}"
            )
        lines += [f"{name}: left out: {reason}" for name, reason in self.skipped.items()]
        if self.floor_ms and ours:
            lines.append(
                f"floor {self.floor_ms:.4f} ms: {self.floor_ms / ours.cold.median:.1%} of it reached"
            )
        return "\n".join(lines)

    def json(self) -> str:
        """Everything, for machines."""
        return json.dumps(asdict(self), indent=1)


def bench(options: Options) -> Comparison:
    """Prepares, checks, times and checks again."""
    from .check import Checker, Subject
    from .floor import floor_ms, physical_floor_ms
    from .runner import TORCH_MODES, FornaxRunner, OnnxRuntimeRunner, Runner, TorchRunner
    from .timing import clock_for, measure
    from .tracks import TRACKS

    track = TRACKS[options.track]
    problem = open_problem(options)
    runners: dict[str, Runner] = {}
    for name in options.against:
        if name == "onnxruntime":
            runners[name] = OnnxRuntimeRunner(Path(options.model))
        elif name in TORCH_MODES and hasattr(problem, "module"):
            runners[name] = TorchRunner(problem.module, name)
        else:
            raise BenchError(
                f"`--against {name}` does not go with {options.model}; {_choices(problem)}"
            )
    ours = FornaxRunner(lambda: _load(options, problem, track.precision))
    subject = Subject(ours, track)
    eager = TorchRunner(problem.module, "eager") if hasattr(problem, "module") else None
    checker = Checker(problem, [subject], eager)
    checker.before_timing(options.seeds)
    skipped = {}
    for name, runner in list(runners.items()):
        try:
            if isinstance(runner, TorchRunner):
                runner.warm_up(problem.inputs)
        except Exception as error:  # a mode of torch that fails is left out
            skipped[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            del runners[name]
    finding = subject.finding
    subjects: dict[str, Runner] = {} if finding.fault else {"fornax": ours}
    calls = {
        name: _call(runner, problem.inputs) for name, runner in {**subjects, **runners}.items()
    }
    times = measure(calls, clock_for(options.device), options.budget_s) if calls else {}
    if not finding.fault:
        checker.after_timing()
        floor = physical_floor_ms(problem.name, track.name)
        if "fornax" in times and times["fornax"].cold.median < floor:
            finding.fault = "faster than the chip can be: what was timed is not the computation"
    return Comparison(
        problem.name,
        track.name,
        finding.fault,
        finding.error.norm,
        finding.eager.norm,
        finding.notes,
        times,
        {name: runner.prepare_s for name, runner in {"fornax": ours, **runners}.items()},
        floor_ms(problem.name, track.name),
        skipped,
    )


def open_problem(options: Options) -> Any:
    """The problem that `options.model` names: a Python file, an ONNX file, a table or a task of the suite."""
    from .problem import ModuleProblem, OnnxProblem, TableProblem

    device = options.device if options.device.startswith("cuda") else "cpu"
    path = Path(options.model)
    if path.suffix == ".py":
        return ModuleProblem(path, device)
    if path.suffix == ".onnx":
        return OnnxProblem(path, options.dims)
    if path.suffix == ".json":
        workload = tables.parse(json.loads(path.read_text(encoding="utf-8")))
    else:
        names = [task for task in tables.select([options.model]) if task in tables.suite()]
        if len(names) != 1:
            raise BenchError(f"`{options.model}` names {len(names)} tasks with a table; name one")
        workload = tables.suite()[names[0]]
    problem = TableProblem(workload, device)
    problem.allocate()
    return problem


def _load(options: Options, problem: Any, precision: str) -> Any:
    import fornax

    if options.bundle is not None:
        return fornax.load(options.bundle, weights=problem.weights(), device=options.device)
    if not hasattr(problem, "module"):
        raise BenchError(
            "give the ONNX model's bundle with --bundle: fornax compile MODEL -o x.fnx"
        )
    return fornax.compile(
        problem.module,
        tuple(problem.inputs),
        device=options.device,
        precision=options.precision or precision,
    )


def _choices(problem: Any) -> str:
    if hasattr(problem, "module"):
        return "a torch module can be compared with eager, compile, reduce-overhead, max-autotune"
    return "an ONNX model can be compared with onnxruntime, which runs on the CPU"


def _call(runner: Any, inputs: Any) -> Any:
    return lambda: runner(inputs)
