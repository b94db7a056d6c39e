"""Whether a subject computes the task. What is guarded against:

* elements never written: outputs are filled with NaN beforehand;
* stored results: the inputs change in place between calls, also after the timing, and tasks whose result
  hardly depends on them are checked on rescaled weights and inputs as well;
* results taken from the reference's memory: the subject runs before the reference does;
* inputs changed: they are compared with a copy;
* work outside the caller's stream: the inputs arrive late on it, and the outputs are copied on it at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from .compare import Error, change, error
from .problem import Problem, Tensors
from .runner import Runner
from .tracks import Track

#: References that change by less than this from input to input let a stored result pass.
INSENSITIVE = 1e-2
#: Clock cycles that a stream is held up for, about 10 ms.
_HOLD_CYCLES = 20_000_000


@dataclass
class Finding:
    """What the checks of a subject found: its largest error, eager's, and the first fault (empty if none)."""

    error: Error = Error(0.0, 0.0, 0, 0)
    eager: Error = Error(0.0, 0.0, 0, 0)
    fault: str = ""
    notes: list[str] = field(default_factory=list)


@dataclass
class Subject:
    """A runner under judgement by a track's rules."""

    runner: Runner
    track: Track
    finding: Finding = field(default_factory=Finding)


class Checker:
    """Checks subjects on one problem.

    `eager` is what track B measures errors against; none is exact. `done` says whether the checks before
    the timing came to their end.
    """

    def __init__(self, problem: Problem, subjects: list[Subject], eager: Runner | None):
        self.problem = problem
        self.subjects = subjects
        self.eager = eager
        self.done = False

    def before_timing(self, seeds: int) -> None:
        """Checks on `seeds` draws of inputs, and on rescaled ones where the result hardly depends on them."""
        first = _compact(self._draw_and_check(0))
        moved = change(first, self._draw_and_check(1))
        del first
        for seed in range(2, seeds):
            self._draw_and_check(seed)
        if moved < INSENSITIVE:
            self.note(f"the result changes by {moved:.0e} from input to input")
            if self._rescale(True):
                self._draw_and_check(seed=101, published=False)
                self.note("also checked on rescaled weights and inputs")
                self._rescale(False)
        if self._on_gpu():
            self._check_stream(seed=102)
        self.done = True

    def after_timing(self) -> None:
        """Checks on inputs not seen before: what was timed must still compute."""
        if self._standing():
            self._draw_and_check(seed=103)

    def note(self, text: str) -> None:
        """Adds a remark to every subject's finding."""
        for subject in self.subjects:
            subject.finding.notes.append(text)

    def _draw_and_check(self, seed: int, published: bool = True) -> Tensors:
        self.problem.draw(seed)
        before = [tensor.clone() for tensor in self.problem.inputs]
        results = {}
        for subject in self._standing():
            results[subject.runner.name] = self._run(subject)
            if not all(map(torch.equal, self.problem.inputs, before)):
                subject.finding.fault = "it changes its inputs"
                self.problem.draw(seed)
        del before
        reference = self.problem.reference()
        eager = Error(0.0, 0.0, 0, 0)
        if self.eager is not None:
            eager = error(self.eager(self.problem.inputs), reference)
        for subject in self._standing():
            _judge(subject, error(results.pop(subject.runner.name), reference), eager, published)
        return reference

    def _run(self, subject: Subject) -> Tensors:
        """The subject's outputs. Raises only if it left the GPU unusable, after noting its fault."""
        out = poisoned(self.problem)
        try:
            result = subject.runner(self.problem.inputs, out)
            self._synchronize()
            return result
        except Exception as fault:  # noqa: BLE001 (whatever a subject raises is its fault)
            subject.finding.fault = f"{type(fault).__name__}: {' '.join(str(fault).split())[:300]}"
            self._synchronize()
            return out

    def _check_stream(self, seed: int) -> None:
        self.problem.draw(seed)
        drawn = [tensor.clone() for tensor in self.problem.inputs]
        for subject in self._standing():
            out = poisoned(self.problem)
            for tensor in self.problem.inputs:
                tensor.zero_()
            torch.cuda.synchronize()
            torch.cuda._sleep(_HOLD_CYCLES)
            for tensor, late in zip(self.problem.inputs, drawn, strict=True):
                tensor.copy_(late)
            at_once = [tensor.clone() for tensor in subject.runner(self.problem.inputs, out)]
            torch.cuda.synchronize()
            settled = self._run(subject)
            if any(not _same(a, b) for a, b in zip(at_once, settled, strict=True)):
                subject.finding.fault = "it works outside the caller's stream"

    def _synchronize(self) -> None:
        if self._on_gpu():
            torch.cuda.synchronize()

    def _rescale(self, rescale: bool) -> bool:
        if not self.problem.draw_weights(rescale):
            return False
        for subject in self._standing():
            subject.runner.refresh()
        return True

    def _standing(self) -> list[Subject]:
        return [subject for subject in self.subjects if not subject.finding.fault]

    def _on_gpu(self) -> bool:
        return any(tensor.is_cuda for tensor in self.problem.inputs)


def poisoned(problem: Problem) -> Tensors:
    """Output tensors filled with NaN; integers with their smallest value."""
    out = problem.empty_outputs()
    for tensor in out:
        if tensor.dtype.is_floating_point:
            tensor.fill_(torch.nan)
        elif tensor.dtype is not torch.bool:
            tensor.fill_(torch.iinfo(tensor.dtype).min)
    return out


def _compact(reference: Tensors) -> Tensors:
    """The reference in half the memory, to be held beside another one."""
    return [tensor.float() if tensor.is_floating_point() else tensor for tensor in reference]


def _judge(subject: Subject, found: Error, eager: Error, published: bool) -> None:
    finding = subject.finding
    if found.norm >= finding.error.norm:
        finding.error, finding.eager = found, eager
    finding.fault = subject.track.fault(found, eager, published)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not a.dtype.is_floating_point:
        return torch.equal(a, b)
    return bool(torch.isclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True).all())
