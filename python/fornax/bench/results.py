"""The suite's tables: one row per listed task, always, from the answers in `suite.jsonl`."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from . import workload as tables
from .compile import CompileRow, read_rows
from .floor import floor_ms, physical_floor_ms
from .tracks import Outcome, Track

#: The columns of torch's subjects.
MODE_COLUMNS = {
    "eager": "eager_ms",
    "compile": "compile_ms",
    "reduce-overhead": "reduce_overhead_ms",
    "max-autotune": "max_autotune_ms",
}


@dataclass
class Row:
    """A task's result; `bench/README.md` says what each column means. Empty text: not known."""

    task: str
    status: str = "not run"
    err: str = ""
    err_eager: str = ""
    ours_ms: str = ""
    eager_ms: str = ""
    compile_ms: str = ""
    reduce_overhead_ms: str = ""
    max_autotune_ms: str = ""
    floor_ms: str = ""
    kernels: str = ""
    compile_s: str = ""
    peak_bytes: str = ""
    note: str = ""

    def outcome(self, track: Track) -> Outcome:
        """The row as it counts in the track."""
        times = [self.number(MODE_COLUMNS[mode]) for mode in track.baseline]
        known = [time for time in times if time is not None]
        trivial = "trivial" in tables.remarks().get(self.task, {})
        fault = "" if self.status == "ok" else f"{self.status}: {self.note}"
        return Outcome(
            self.task,
            self.number("ours_ms"),
            min(known) if known else None,
            self.number("floor_ms"),
            trivial,
            fault,
        )

    def number(self, column: str) -> float | None:
        """A column as a number."""
        text = getattr(self, column)
        return float(text) if text else None


def rows(
    records: list[dict[str, Any]], bundles: Path, track: Track, tasks: Sequence[str]
) -> list[Row]:
    """A row for each of `tasks`, from the newest records of each."""
    compiled = read_rows(bundles)
    return [_row(task, records, compiled.get(task), track) for task in tasks]


def header(records: list[dict[str, Any]], track: Track) -> dict[str, str]:
    """A table's header: the newest environment, and the track's rule."""
    found = [record for record in records if record["verb"] == "environment"]
    newest = found[-1] if found else {}
    known = {key: value for key, value in newest.items() if key not in ("verb", "task")}
    return {**known, "track": f"{track.name}: {track.rule}"}


def write(path: Path, result: list[Row], header: dict[str, str]) -> None:
    """Writes a table; the header's lines come first, each behind `# `."""
    text = io.StringIO()
    for key, value in header.items():
        text.write(f"# {key}: {value}\n")
    writer = csv.DictWriter(text, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(vars(row) for row in result)
    part = path.with_suffix(".part")
    part.write_text(text.getvalue(), encoding="utf-8")
    part.replace(path)


def read(path: Path) -> list[Row]:
    """The rows of a written table."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [
        Row(**row) for row in csv.DictReader(line for line in lines if not line.startswith("#"))
    ]


def _row(
    task: str, records: list[dict[str, Any]], compiled: CompileRow | None, track: Track
) -> Row:
    row = Row(task, floor_ms=_text(floor_ms(task, track.name)))
    own = [record for record in records if record["task"] == task]
    timed = [record for record in own if record["verb"] == "time"]
    _fill_torch_times(row, timed)
    if compiled is None or compiled.status != "ok":
        row.status = "no bundle"
        row.note = compiled.error if compiled else "not compiled"
        return row
    row.kernels, row.compile_s = str(compiled.kernels), _text(compiled.compile_s)
    if compiled.precision == "fp32" and track.precision != "fp32":
        row.note = "compiled with fp32"
    checks = [r for r in own if r["verb"] == "check" and r.get("track") == track.name]
    if not checks:
        row.note = "not checked"
        return row
    _fill_check(row, checks[-1])
    if checks[-1]["fault"]:
        row.status = _status(checks[-1]["fault"])
        row.note = _joined(checks[-1]["fault"], row.note)
        return row
    subject = f"fornax-{track.name}"
    same = [r for r in timed if _bundle(r, track) == _bundle(checks[-1], track)]
    ours = [r for r in same if subject in r.get("times", {}) or r.get("fault")]
    if not ours:
        row.note = _joined("not timed", row.note)
        return row
    main = _main(ours)
    _fill_torch_times(row, [main])
    _fill_ours(row, main, track)
    return row


def _bundle(record: dict[str, Any], track: Track) -> str | None:
    """The hash of the bundle that a record is about."""
    return record["bundles"].get(track.name)


def _status(fault: str) -> str:
    """A failed check's status: `crashed`, `not loaded` or `wrong`."""
    if fault.startswith("crashed"):
        return "crashed"
    return "not loaded" if fault.startswith("does not load") else "wrong"


def _main(timed: list[dict[str, Any]]) -> dict[str, Any]:
    """The newest record that holds eager mode, too, since ours was timed in turn with it."""
    whole = [record for record in timed if "eager" in record.get("times", {})]
    return (whole or timed)[-1]


def _fill_torch_times(row: Row, timed: list[dict[str, Any]]) -> None:
    for record in timed:
        for mode, column in MODE_COLUMNS.items():
            if mode in record.get("times", {}):
                setattr(row, column, _text(record["times"][mode]["cold"]["median"]))
        for mode, fault in record.get("faults", {}).items():
            remark = f"{mode}: {fault}"
            row.note = row.note if remark in row.note else _joined(row.note, remark)


def _fill_check(row: Row, check: dict[str, Any]) -> None:
    if "error" in check:
        row.err, row.err_eager = _text(check["error"]["norm"]), _text(check["eager_error"]["norm"])
    row.kernels = str(check.get("kernels", row.kernels))
    row.peak_bytes = str(check.get("peak_bytes", ""))
    row.note = _joined(row.note, "; ".join(check.get("notes", [])))


def _fill_ours(row: Row, record: dict[str, Any], track: Track) -> None:
    if record.get("fault"):
        row.status, row.note = "crashed", _joined(record["fault"], row.note)
        return
    ours = record["times"][f"fornax-{track.name}"]["cold"]["median"]
    after = record["after"][track.name]["fault"]
    floor = physical_floor_ms(row.task, track.name)
    row.ours_ms = _text(ours)
    if after:
        row.status, row.note = "wrong", _joined(f"after the timing: {after}", row.note)
    elif ours < floor:
        row.status = "below floor"
        row.note = _joined(
            f"{ours:.4f} ms; the chip cannot do it in less than {floor:.4f}", row.note
        )
    else:
        row.status = "ok"


def _text(number: float | None) -> str:
    return "" if number is None else f"{number:.4g}"


def _joined(*texts: str) -> str:
    return "; ".join(text for text in texts if text)
