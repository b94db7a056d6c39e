"""A process of the suite: compiles, checks and times tasks when told to, and dies alone.

A fault of a kernel poisons its process's GPU context for good, so nothing that runs kernels under test
shares a process with the coordinator (`suite.py`).
"""

from __future__ import annotations

import gc
import time
import traceback
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from typing import Any

DEVICE = "cuda:0"


@dataclass(frozen=True)
class Order:
    """What a worker shall do with a task.

    `verb`: `compile` (torch modules, without a launch), `check` (bundles against the reference) or
    `time` (everything in turn). `bundles`: bundle files by track. `modes`: subjects of torch.
    """

    verb: str
    task: str
    bundles: dict[str, str] = field(default_factory=dict)
    modes: tuple[str, ...] = ()
    seeds: int = 2
    budget_s: float = 1.0


@dataclass
class Reply:
    """What came of an order: `result` by verb, or why there is none. After `poisoned` the worker is gone."""

    order: Order
    result: dict[str, Any] = field(default_factory=dict)
    fault: str = ""
    poisoned: bool = False
    seconds: float = 0.0


def serve(connection: Connection) -> None:
    """The process's main function: carries out orders until `None` comes or the GPU context is poisoned."""
    worker = _Worker()
    connection.send("ready")
    while (order := connection.recv()) is not None:
        reply = worker.obey(order)
        connection.send(reply)
        if reply.poisoned:
            break


class _Worker:
    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        torch.zeros(1, device=DEVICE)
        self._compiled: dict[str, tuple[Any, dict[str, Any]]] = {}
        self._clock: Any = None

    def obey(self, order: Order) -> Reply:
        started = time.monotonic()
        reply = Reply(order)
        try:
            getattr(self, f"_{order.verb}")(order, reply.result)
        except Exception as error:  # a task must not stop the suite; what was found so far counts
            reply.fault = _one_line(error)
        reply.poisoned = not self._clean_up()
        reply.seconds = time.monotonic() - started
        return reply

    def _compile(self, order: Order, result: dict[str, Any]) -> None:
        from .problem import TableProblem
        from .runner import TorchRunner
        from .workload import suite

        problem = TableProblem(suite()[order.task], DEVICE)
        problem.allocate()
        runners, faults = {}, {}
        for mode in order.modes:
            runner = TorchRunner(problem.module, mode)
            try:
                if mode in ("compile", "reduce-overhead"):
                    runner.compile_only(problem.inputs)
                runners[mode] = runner
            except Exception as error:  # a mode of torch that fails is left out
                faults[mode] = _one_line(error)
        problem.release()
        self._compiled[order.task] = (problem, runners)
        result["faults"] = faults

    def _check(self, order: Order, result: dict[str, Any]) -> None:
        from .check import Checker, Subject
        from .problem import TableProblem
        from .runner import TorchRunner
        from .tracks import TRACKS
        from .workload import suite

        problem = TableProblem(suite()[order.task], DEVICE)
        problem.allocate()
        subjects = []
        for track, bundle in order.bundles.items():
            try:
                runner = _load(bundle, problem, track)
                subjects.append(Subject(runner, TRACKS[track]))
            except Exception as error:  # a bundle that does not load is the task's fault
                result[track] = {"fault": f"does not load: {_one_line(error)}"}
        checker = Checker(problem, subjects, TorchRunner(problem.module, "eager"))
        try:
            checker.before_timing(order.seeds)
        finally:
            # Ended early, the checks say nothing of a subject in which they found no fault.
            found = subjects if checker.done else [s for s in subjects if s.finding.fault]
            for subject in found:
                result[subject.track.name] = {**_finding(subject), **_facts(subject.runner)}

    def _time(self, order: Order, result: dict[str, Any]) -> None:
        if order.task not in self._compiled:
            self._compile(order, {})
        problem, runners = self._compiled.pop(order.task)
        # What other tasks' compilations left need not be looked through at each collection.
        gc.freeze()
        problem.allocate()
        try:
            self._time_allocated(order, problem, runners, result)
        finally:
            problem.release()

    def _time_allocated(
        self, order: Order, problem: Any, runners: dict[str, Any], result: dict[str, Any]
    ) -> None:
        from .check import Checker, Subject
        from .runner import TorchRunner
        from .timing import CudaClock, measure
        from .tracks import TRACKS

        faults: dict[str, str] = {}
        problem.draw(seed=0)
        for mode in list(runners):
            try:
                runners[mode].warm_up(problem.inputs)
            except Exception as error:  # a mode of torch that fails is left out
                faults[mode] = _one_line(error)
                del runners[mode]
        faults |= _disagreements(runners, problem.inputs)
        subjects = [
            Subject(_load(bundle, problem, track), TRACKS[track])
            for track, bundle in order.bundles.items()
        ]
        self._clock = self._clock or CudaClock(DEVICE)
        calls = {f"fornax-{s.track.name}": _call(s.runner, problem.inputs) for s in subjects}
        calls |= {mode: _call(runner, problem.inputs) for mode, runner in runners.items()}
        times = measure(calls, self._clock, order.budget_s)
        eager = TorchRunner(problem.module, "eager")
        Checker(problem, subjects, eager).after_timing()
        result |= {
            "times": {name: asdict(value) for name, value in times.items()},
            "prepare_s": {
                **{f"fornax-{s.track.name}": s.runner.prepare_s for s in subjects},
                **{mode: runner.prepare_s for mode, runner in runners.items()},
            },
            "after": {s.track.name: _finding(s) for s in subjects},
            "faults": faults,
        }

    def _clean_up(self) -> bool:
        """Frees what the task held. Returns whether the GPU context still works."""
        import torch
        from torch._inductor import cudagraph_trees

        try:
            torch.cuda.synchronize()
            # The pools of recorded graphs would keep a task's intermediates allocated.
            cudagraph_trees.reset_cudagraph_trees()
            gc.collect()
            torch.cuda.empty_cache()
            torch.ones(1, device=DEVICE).item()
        except RuntimeError:
            return False
        return True


def _load(bundle: str, problem: Any, track: str) -> Any:
    import fornax

    from .runner import FornaxRunner

    weights = problem.weights()
    return FornaxRunner(
        lambda: fornax.load(bundle, weights=weights, device=DEVICE), f"fornax-{track}"
    )


def _call(runner: Any, inputs: Any) -> Any:
    return lambda: runner(inputs)


def _finding(subject: Any) -> dict[str, Any]:
    finding = subject.finding
    return {
        "fault": finding.fault,
        "error": asdict(finding.error),
        "eager_error": asdict(finding.eager),
        "notes": finding.notes,
    }


def _facts(runner: Any) -> dict[str, Any]:
    model, memory = runner.model, runner.model.memory
    return {
        "kernels": len(model.kernels),
        "peak_bytes": memory.weights + memory.prepared + memory.scratch,
    }


def _disagreements(runners: dict[str, Any], inputs: Any) -> dict[str, str]:
    """Modes of torch whose result is far from eager's: their times are of another computation."""
    from .compare import distance

    if "eager" not in runners:
        return {}
    expected = runners["eager"](inputs)
    distances = {
        mode: distance(runner(inputs), expected)
        for mode, runner in runners.items()
        if mode != "eager"
    }
    return {
        mode: f"differs from eager by {far:.1e}"
        for mode, far in distances.items()
        if not far <= 1e-2
    }


def _one_line(error: BaseException) -> str:
    text = " ".join("".join(traceback.format_exception_only(error)).split())
    return text[:300]
