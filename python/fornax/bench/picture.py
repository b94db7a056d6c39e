"""The picture of a table: the speed-up per task, and the distance to the floor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import results
from .tracks import FASTER, Outcome, Track
from .workload import BenchError, order

_COLOURS = {"L1": "#3b6fb6", "L2": "#c2702a", "L3": "#3f8f4f"}


def draw(table: Path, track: Track, out: Path) -> None:
    """Draws a written table into `out` (.svg or .png)."""
    try:
        import matplotlib
    except ImportError as error:
        raise BenchError("drawing needs matplotlib: pip install matplotlib") from error
    matplotlib.use("Agg")
    # Without a fixed salt and date the same table would give other bytes each time.
    matplotlib.rcParams.update({"svg.hashsalt": "fornax", "svg.fonttype": "none", "font.size": 8})
    import matplotlib.pyplot as plt

    rows = results.read(table)
    outcomes = [row.outcome(track) for row in rows]
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(14, 8), layout="constrained")
    _speedups(top, outcomes, track)
    _distances(bottom, outcomes)
    figure.suptitle(f"{table.stem}: track {track.name} ({', '.join(track.baseline)} as baseline)")
    figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)
    plt.close(figure)


def _speedups(axes: Any, outcomes: list[Outcome], track: Track) -> None:
    for at, outcome in enumerate(outcomes):
        level = order(outcome.task)[0]
        if outcome.speedup is not None:
            axes.bar(
                at, outcome.speedup - 1, bottom=1, color=_COLOURS.get(level, "grey"), width=0.8
            )
        elif outcome.fault:
            axes.plot(at, 1, marker="x", color="black", markersize=3)
    axes.set_yscale("log")
    axes.axhline(1, color="black", linewidth=0.5)
    axes.axhline(FASTER, color="black", linewidth=0.5, linestyle=":")
    axes.set_ylabel("speed-up (baseline / ours); x: failed")
    axes.margins(x=0.01)
    axes.yaxis.set_major_formatter("{x:g}")
    _label(axes, outcomes)


def _distances(axes: Any, outcomes: list[Outcome]) -> None:
    for at, outcome in enumerate(outcomes):
        if not outcome.floor_ms:
            continue
        level = order(outcome.task)[0]
        if outcome.baseline_ms:
            axes.plot(
                at, outcome.baseline_ms / outcome.floor_ms, marker="_", color="grey", markersize=4
            )
        if outcome.speedup is not None and outcome.ours_ms:
            distance = outcome.ours_ms / outcome.floor_ms
            axes.plot(at, distance, marker=".", color=_COLOURS.get(level, "grey"), markersize=4)
    axes.set_yscale("log")
    axes.axhline(1, color="black", linewidth=0.5)
    axes.set_ylabel("time / floor (dash: baseline)")
    axes.margins(x=0.01)
    axes.yaxis.set_major_formatter("{x:g}")
    _label(axes, outcomes)


def _label(axes: Any, outcomes: list[Outcome]) -> None:
    ticks = list(range(0, len(outcomes), 5))
    axes.set_xticks(
        ticks, ["/".join(map(str, order(outcomes[at].task))) for at in ticks], rotation=90
    )
