"""The command line of `python -m fornax.bench`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import workload
from .workload import BenchError


def main(argv: list[str] | None = None) -> int:
    """Runs a command. 0: all is well; 1: a result is wrong; 2: an input, option or the environment is."""
    options = _parser().parse_args(argv)
    try:
        return options.run(options)
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fornax bench", description=__doc__)
    commands = parser.add_subparsers(required=True)
    export = commands.add_parser("export", help="export the suite's tasks as ONNX without weights")
    export.add_argument("--out", type=Path, required=True, help="folder for <task>.onnx, export.csv")
    export.add_argument("--processes", type=int, default=2, help="exports at once")
    export.add_argument("tasks", nargs="*", help="L1, L1/19 or a whole name; all unless given")
    export.set_defaults(run=_export)

    batch = commands.add_parser("compile", help="compile exports to bundles without weights")
    batch.add_argument("--fornax", type=Path, required=True, help="the program, built with LLVM")
    batch.add_argument("--models", type=Path, required=True, help="folder of exports")
    batch.add_argument("--out", type=Path, required=True, help="folder for bundles and compile.csv")
    batch.add_argument("--precision", default="fp32", help="arithmetic of contractions")
    batch.add_argument("--timeout-s", type=float, default=300.0, help="seconds one task may take")
    batch.add_argument("--processes", type=int, default=2, help="compilations at once")
    batch.add_argument("--again", action="store_true", help="also what is compiled already")
    batch.add_argument("tasks", nargs="*", help="L1, L1/19 or a whole name; all unless given")
    batch.set_defaults(run=_compile)
    return parser


def _export(options: argparse.Namespace) -> int:
    from .export import export_suite

    rows = export_suite(workload.select(options.tasks), options.out, options.processes)
    failed = [row for row in rows if row["status"] == "failed"]
    print(f"{len(rows) - len(failed)} exported, {len(failed)} not")
    return 0


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
