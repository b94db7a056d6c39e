"""The two tracks: what counts as correct, what the baseline is, and what is reported. Never mixed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from .compare import Error

#: A speed-up above this is faster, one below `SLOWER` slower, and what lies between is equal.
FASTER = 1.02
SLOWER = 0.98
#: A worst element further off than this, relative to the larger of its own and the output's size, is wrong
#: whatever the norm says: a few wrong elements vanish in the norm of a large output.
WORST = 0.1
#: How much larger than eager mode's an error may be at matched precision.
MATCHED = 1.5
#: One unit in the last place of float32 next to one.
ULP = 2.0**-23


@dataclass(frozen=True)
class Track:
    """Rules of a comparison.

    `baseline`: the subjects of torch whose best time is the baseline. `precision`: what bundles are
    compiled with. `rule`: the tolerance in words.
    """

    name: str
    precision: str
    baseline: tuple[str, ...]
    rule: str

    def fault(self, error: Error, eager: Error, published: bool = True) -> str:
        """Why a result is wrong; empty if it is right.

        `eager` is the error of torch's eager mode. `published` says whether inputs and weights are drawn
        as the task says. The published tolerance is made for those: on rescaled ones, whose outputs have
        other sizes, only the norm counts, with eager mode's own error where that is large.
        """
        limit = self._norm_limit(eager)
        if not published:
            limit = max(limit, MATCHED * eager.norm)
        if error.not_finite > eager.not_finite:
            return f"{error.not_finite} elements are NaN or infinite, or were not written"
        if not error.norm <= limit:
            return f"error {error.norm:.2e} in the norm; allowed {limit:.2e}"
        if error.worst > max(WORST, 2 * eager.worst):
            return f"an element is off by {error.worst:.2e} of its size; allowed {WORST}"
        # Where eager mode has elements beyond it, too, their number is a matter of chance.
        if self.name == "A" and published and error.outside > MATCHED * eager.outside:
            return f"{error.outside} elements beyond 1e-2 + 1e-2 |x|"
        return ""

    def _norm_limit(self, eager: Error) -> float:
        return 1e-2 if self.name == "A" else MATCHED * eager.norm + ULP


TRACKS = {
    "A": Track(
        "A",
        "tf32",
        ("compile",),
        "published rules: torch's default precision in torch.compile's default mode as baseline, "
        "ours may use TF32; error at most 1e-2 absolute plus relative per element and in the norm",
    ),
    "B": Track(
        "B",
        "torch",
        ("eager", "compile", "reduce-overhead", "max-autotune"),
        "matched precision: error against float64 at most 1.5 times eager's own plus one ulp; "
        "baseline is the best of eager and the measured modes of torch.compile",
    ),
}


@dataclass(frozen=True)
class Outcome:
    """A task's result in a track: ours and the baseline in milliseconds, or why there is none."""

    task: str
    ours_ms: float | None
    baseline_ms: float | None
    floor_ms: float | None
    trivial: bool
    fault: str

    @property
    def speedup(self) -> float | None:
        """Baseline over ours; none for a task that failed or was not measured."""
        if self.fault or not self.ours_ms or not self.baseline_ms:
            return None
        return self.baseline_ms / self.ours_ms


def summary(outcomes: Iterable[Outcome], title: str) -> str:
    """Rates and means. Failures count as not faster in the rates and are apart from the means."""
    rows = list(outcomes)
    if not rows:
        return f"{title}: no tasks"
    speedups = [outcome.speedup for outcome in rows if outcome.speedup is not None]
    n = len(rows)
    faster = sum(s > FASTER for s in speedups)
    slower = sum(s < SLOWER for s in speedups)
    correct = sum(not outcome.fault for outcome in rows)
    counts = {
        "correct": correct,
        "faster": faster,
        "equal": len(speedups) - faster - slower,
        "slower": slower,
        "failed": n - correct,
        "not compared": correct - len(speedups),
    }
    line = f"{title}, {n} tasks: " + ", ".join(
        f"{name} {count} ({100 * count / n:.1f} %)" for name, count in counts.items()
    )
    if speedups:
        median = statistics.median(speedups)
        line += f"; speed-up: geometric mean {geomean(speedups):.3f}, median {median:.3f}"
    shares = [
        o.floor_ms / o.ours_ms for o in rows if o.speedup is not None and o.floor_ms and o.ours_ms
    ]
    if shares:
        line += f"; share of the floor: geometric mean {geomean(shares):.3f}"
    return line


def report(outcomes: list[Outcome]) -> str:
    """The summary of all tasks, by level, without trivial tasks, and the failures by name."""
    lines = [summary(outcomes, "all")]
    levels = sorted({outcome.task.partition("/")[0] for outcome in outcomes if "/" in outcome.task})
    for level in levels:
        own = [outcome for outcome in outcomes if outcome.task.startswith(f"{level}/")]
        lines.append(summary(own, level))
    if any(outcome.trivial for outcome in outcomes):
        serious = [outcome for outcome in outcomes if not outcome.trivial]
        lines.append(summary(serious, "without tasks that algebra makes trivial"))
    failed = [outcome for outcome in outcomes if outcome.fault]
    if failed:
        lines += ["failed:", *(f"  {outcome.task}: {outcome.fault}" for outcome in failed)]
    return "\n".join(lines)


def geomean(values: Iterable[float]) -> float:
    """The geometric mean."""
    return math.exp(statistics.fmean(math.log(value) for value in values))
