"""The GPU suite: validates and profiles bundles on the GPU of this machine.

    python3 bench/gpu_suite.py FORNAX FOLDER OUT [--revision REV]

FORNAX is the program built without LLVM; FOLDER holds `models/*.fnx` (validated on seeded inputs,
profiled) and `cases/*.fnx`, each with a recording `<name>.npz` beside it if it has one (validated only).
`<name>.args` holds further arguments of `fornax validate`, a line each. Writes `OUT/gpu_suite.json`,
`OUT/gpu_suite.md` and one profile per model. Exit code 1 when something failed.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path


#: Cases that share a process.
GROUP = 32


def arguments_of(bundle):
    path = bundle.with_suffix(".args")
    return path.read_text().split() if path.exists() else []


def call(command, timeout=300):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None, "", f"no answer within {timeout} s"
    return done.returncode, done.stdout, done.stderr


def validate(fornax, bundle):
    recording = bundle.with_suffix(".npz")
    source = ["--recorded", str(recording)] if recording.exists() else arguments_of(bundle)
    started = time.time()
    code, out, err = call([fornax, "validate", str(bundle), "--bisect", "--no-certificate", "--json", *source])
    row = {"name": bundle.stem, "passed": code == 0, "seconds": time.time() - started}
    if code in (0, 1):
        return judged(row, json.loads(out))
    row["reason"] = (err or out).strip()[-400:]
    return row


def validate_cases(fornax, cases):
    """Rows of cases that share a process, and so a context of the GPU; each of those without a report is tried
    again by itself, since a kernel that faults takes the context with it."""
    folder = str(cases[0].parent)
    started = time.time()
    flags = ["--bisect", "--no-certificate", "--json", "--recorded", folder]
    _, out, _ = call([fornax, "validate", *flags, *map(str, cases)])
    lines = [json.loads(line) for line in out.splitlines() if line.endswith("}")]
    each = (time.time() - started) / len(cases)
    reports = {line["bundle"]: line for line in lines if "error" not in line}
    rows = []
    for case in cases:
        report = reports.get(str(case))
        if report is None:
            rows.append(validate(fornax, case))
        else:
            rows.append(judged({"name": case.stem, "passed": report["passed"], "seconds": each}, report))
    return rows


def judged(row, report):
    outputs = [output for case in report["cases"] for output in case["outputs"]]
    row["target"] = report["target"]
    row["relative_error"] = max((o["relative_error"] or 0 for o in outputs), default=0)
    row["worst_ulp"] = max((o["worst_ulp"] or 0 for o in outputs), default=0)
    if not report["passed"]:
        row["reason"] = json.dumps(report.get("first_wrong_region"))[:400]
    return row


def profile(fornax, bundle, out):
    extra = [argument for argument in arguments_of(bundle)]
    code, text, err = call([fornax, "profile", str(bundle), "--json", *extra])
    if code != 0:
        return {"name": bundle.stem, "reason": (err or text).strip()[-400:]}
    report = json.loads(text)
    (out / f"profile_{bundle.stem}.json").write_text(text)
    return {
        "name": bundle.stem,
        "kernels": len(report["kernels"]),
        "us": report["total_ns"] / 1e3,
        "bytes": sum(kernel["bytes"] for kernel in report["kernels"]),
        "flops": sum(kernel["flops"] for kernel in report["kernels"]),
    }


def device():
    query = "name,driver_version,memory.total"
    code, out, _ = call(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"])
    return out.strip() if code == 0 else "no GPU"


def table(rows, columns):
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = [row.get(column, "") for column in columns]
        cells = [f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in cells]
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fornax")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--revision", default="unknown")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    models = sorted((options.folder / "models").glob("*.fnx"))
    cases = sorted((options.folder / "cases").glob("*.fnx"))
    alone = [*models, *(case for case in cases if case.with_suffix(".args").exists())]
    shared = [case for case in cases if case not in set(alone)]
    groups = [shared[start : start + GROUP] for start in range(0, len(shared), GROUP)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        singles = pool.map(lambda bundle: validate(options.fornax, bundle), alone)
        several = pool.map(lambda group: validate_cases(options.fornax, group), groups)
        rows = [*singles, *(row for rows in several for row in rows)]
    profiles = [profile(options.fornax, bundle, options.out) for bundle in models]
    passed = sum(row["passed"] for row in rows)
    result = {
        "device": device(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "revision": options.revision,
        "command": " ".join(["python3", *sys.argv]),
        "passed": passed,
        "failed": len(rows) - passed,
        "validation": rows,
        "profiles": profiles,
    }
    (options.out / "gpu_suite.json").write_text(json.dumps(result, indent=1))
    model_rows = [row for row in rows if row["name"] in {bundle.stem for bundle in models}]
    failed = [row for row in rows if not row["passed"]]
    text = [
        f"# GPU suite, {result['date']}",
        "",
        f"Device: {result['device']} (name, driver, memory). Revision: {result['revision']}.",
        f"Command: `{result['command']}`.",
        "",
        f"{passed} passed, {len(rows) - passed} failed.",
        "",
        "## Models, validated",
        "",
        table(model_rows, ["name", "passed", "target", "relative_error", "worst_ulp", "reason"]),
        "",
        "## Models, profiled (sum of kernel times, median of 20 runs, warm)",
        "",
        table(profiles, ["name", "kernels", "us", "bytes", "flops", "reason"]),
    ]
    if failed:
        text += ["", "## Failed", "", table(failed, ["name", "reason"])]
    (options.out / "gpu_suite.md").write_text("\n".join(text) + "\n")
    print("\n".join(text))
    return 0 if passed == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
