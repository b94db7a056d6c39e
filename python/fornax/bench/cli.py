"""Compare Fornax with torch on one model, or run the KernelBench suite.

fornax bench MODEL.py|MODEL.onnx|TABLE.json|TASK   one model, checked and timed in turn
fornax bench export|compile|suite|tables|report    the suite, step by step
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import workload
from .workload import BenchError


def main(argv: list[str] | None = None) -> int:
    """Runs a command. 0: all is well; 1: a result is wrong; 2: an input, option or the environment is."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        if arguments and arguments[0] in _COMMANDS:
            parser = argparse.ArgumentParser(prog=f"fornax bench {arguments[0]}")
            declare, run = _COMMANDS[arguments[0]]
            declare(parser)
            return run(parser.parse_args(arguments[1:]))
        return _bench(_bench_parser().parse_args(arguments))
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _bench_parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("fornax bench", description=__doc__, formatter_class=formatter)
    parser.add_argument(
        "model", help="a KernelBench Python file, an ONNX file, a table or a task's name"
    )
    parser.add_argument(
        "--against",
        default="eager,compile,reduce-overhead",
        help="eager, compile, reduce-overhead, max-autotune; onnxruntime for ONNX files",
    )
    parser.add_argument(
        "--track", choices=("A", "B"), default="B", help="the rules; see bench/README.md"
    )
    parser.add_argument("--device", default="cuda:0", help="cuda:INDEX or emulator")
    parser.add_argument(
        "--bundle", type=Path, help="compiled already; by `fornax compile` otherwise"
    )
    parser.add_argument(
        "--precision", default="", help="of the compilation, instead of the track's"
    )
    parser.add_argument(
        "--dim", action="append", default=[], metavar="NAME=SIZE",
        help="a symbolic size of an ONNX file (repeatable)",
    )
    parser.add_argument("--seeds", type=int, default=2, help="draws of inputs that are checked")
    parser.add_argument("--budget-s", type=float, default=5.0, help="seconds of timing")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    return parser


def _bench(options: argparse.Namespace) -> int:
    from .single import Options, bench

    comparison = bench(
        Options(
            options.model,
            tuple(options.against.split(",")),
            options.track,
            options.device,
            options.bundle,
            options.precision,
            options.seeds,
            options.budget_s,
            _dims(options.dim),
        )
    )
    print(comparison.json() if options.json else comparison.text())
    return 1 if comparison.fault else 0


def _dims(entries: Sequence[str]) -> dict[str, int]:
    dims = {}
    for entry in entries:
        name, _, size = entry.partition("=")
        if not (name and size.isdecimal()):
            raise BenchError(f"--dim {entry}: expected NAME=SIZE, as in batch=8")
        dims[name] = int(size)
    return dims


def _declare_tasks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tasks", nargs="*", help="L1, L1/19 or a whole name; all unless given")


def _declare_export(parser: argparse.ArgumentParser) -> None:
    parser.description = "Export the suite's tasks as ONNX without weights."
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for <task>.onnx and export.csv"
    )
    parser.add_argument("--processes", type=int, default=2, help="exports at once")
    _declare_tasks(parser)


def _export(options: argparse.Namespace) -> int:
    from .export import export_suite

    rows = export_suite(workload.select(options.tasks), options.out, options.processes)
    failed = sum(row["status"] == "failed" for row in rows)
    print(f"{len(rows) - failed} exported, {failed} not")
    return 0


def _declare_compile(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compile exports to bundles without weights; what is compiled already is kept."
    )
    parser.add_argument("--fornax", type=Path, required=True, help="the program, built with LLVM")
    parser.add_argument("--models", type=Path, required=True, help="folder of exports")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for bundles and compile.csv"
    )
    parser.add_argument("--precision", default="fp32", help="arithmetic of contractions")
    parser.add_argument("--timeout-s", type=float, default=300.0, help="seconds one task may take")
    parser.add_argument("--processes", type=int, default=2, help="compilations at once")
    parser.add_argument("--again", action="store_true", help="also what is compiled already")
    _declare_tasks(parser)


def _compile(options: argparse.Namespace) -> int:
    from .compile import compile_suite, grouped_failures

    rows = compile_suite(
        options.fornax,
        options.models,
        options.out,
        workload.select(options.tasks),
        options.precision,
        options.timeout_s,
        options.processes,
        options.again,
    )
    print(grouped_failures(rows), end="")
    return 0


def _declare_suite(parser: argparse.ArgumentParser) -> None:
    parser.description = "Check and time all tasks on the GPU; resumable."
    parser.add_argument(
        "--track",
        action="append",
        required=True,
        metavar="A=DIR",
        help="a track and its folder of bundles (with compile.csv); both tracks may run at once",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for tables and suite.jsonl")
    parser.add_argument(
        "--resume",
        type=Path,
        action="append",
        default=[],
        help="a suite.jsonl of before (repeatable)",
    )
    parser.add_argument(
        "--modes",
        default="eager,compile,reduce-overhead",
        help="subjects of torch; run max-autotune alone: it needs the GPU to itself",
    )
    parser.add_argument("--workers", type=int, default=14, help="processes that compile")
    parser.add_argument("--seeds", type=int, default=2, help="draws of inputs that are checked")
    parser.add_argument("--budget-s", type=float, default=540.0, help="seconds the whole may take")
    parser.add_argument("--task-s", type=float, default=0.6, help="seconds of timing per task")
    parser.add_argument(
        "--revision", default="unknown", help="of the source, for the tables' headers"
    )
    _declare_tasks(parser)


def _suite(options: argparse.Namespace) -> int:
    from .environment import environment
    from .suite import Store, Suite, SuiteOptions

    bundles = _track_folders(options.track)
    settings = SuiteOptions(
        tuple(workload.select(options.tasks)),
        bundles,
        options.out,
        tuple(options.modes.split(",")),
        options.workers,
        options.seeds,
        options.budget_s,
        options.task_s,
    )
    store = Store(options.out / "suite.jsonl", options.resume)
    store.add({"verb": "environment", "task": "", **environment(options.revision)})

    def save() -> None:
        _write_tables(store.records, bundles, options.out, settings.tasks)

    suite = Suite(settings, store, lambda text: print(text, flush=True), save)
    try:
        suite.run()
    finally:
        save()
    _print_reports(options.out, list(bundles))
    return 0


def _track_folders(entries: list[str]) -> dict[str, Path]:
    folders = {}
    for entry in entries:
        track, _, folder = entry.partition("=")
        if track not in ("A", "B") or not Path(folder).is_dir():
            raise BenchError(f"--track {entry}: give A=DIR or B=DIR with an existing folder")
        folders[track] = Path(folder)
    return folders


def _write_tables(
    records: list[dict[str, Any]], bundles: dict[str, Path], out: Path, tasks: Sequence[str]
) -> None:
    from . import results
    from .tracks import TRACKS

    for name, folder in bundles.items():
        track = TRACKS[name]
        header = results.header(records, track)
        rows = results.rows(records, folder, track, tasks)
        results.write(out / f"kernelbench-{name}.csv", rows, header)


def _print_reports(out: Path, names: list[str]) -> None:
    from . import results
    from .tracks import TRACKS, report

    for name in names:
        rows = results.read(out / f"kernelbench-{name}.csv")
        print(f"\nTrack {name}\n{report([row.outcome(TRACKS[name]) for row in rows])}", flush=True)


def _declare_tables(parser: argparse.ArgumentParser) -> None:
    parser.description = "Make the suite's tables again from its records; needs no GPU."
    parser.add_argument("records", type=Path, nargs="+", help="suite.jsonl files, oldest first")
    parser.add_argument("--track", action="append", required=True, metavar="A=DIR")
    parser.add_argument("--out", type=Path, required=True, help="folder for the tables")


def _tables(options: argparse.Namespace) -> int:
    from .suite import read_records

    bundles = _track_folders(options.track)
    records = [record for path in options.records for record in read_records(path)]
    options.out.mkdir(parents=True, exist_ok=True)
    _write_tables(records, bundles, options.out, workload.listed_tasks())
    _print_reports(options.out, list(bundles))
    return 0


def _declare_report(parser: argparse.ArgumentParser) -> None:
    parser.description = "Summarise a table, and draw it."
    parser.add_argument("table", type=Path, help="a table that `suite` wrote")
    parser.add_argument("--track", choices=("A", "B"), required=True)
    parser.add_argument(
        "--picture", type=Path, metavar="FILE.svg|FILE.png", help="where to draw it"
    )


def _report(options: argparse.Namespace) -> int:
    from . import results
    from .picture import draw
    from .tracks import TRACKS, report

    track = TRACKS[options.track]
    print(report([row.outcome(track) for row in results.read(options.table)]))
    if options.picture:
        draw(options.table, track, options.picture)
    return 0


_Declare = Callable[[argparse.ArgumentParser], None]
_Run = Callable[[argparse.Namespace], int]
_COMMANDS: dict[str, tuple[_Declare, _Run]] = {
    "export": (_declare_export, _export),
    "compile": (_declare_compile, _compile),
    "suite": (_declare_suite, _suite),
    "tables": (_declare_tables, _tables),
    "report": (_declare_report, _report),
}
