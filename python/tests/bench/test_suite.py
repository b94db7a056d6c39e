"""The suite's coordinator: no task's death loses another's result."""

import pytest

pytest.importorskip("torch", reason="the benchmark needs torch")

import fake_worker  # noqa: E402
from fornax.bench import results, workload  # noqa: E402
from fornax.bench.suite import Store, Suite, SuiteOptions, read_records  # noqa: E402
from fornax.bench.tracks import TRACKS  # noqa: E402

TASKS = workload.select(["L1/19", "L1/20", "L1/21", "L1/22", "L1/24", "L1/25"])


def make_bundles(folder):
    folder.mkdir()
    rows = ["task,status,compile_s,cpu_s,peak_bytes,kernels,bundle_bytes,precision,error"]
    for task in TASKS:
        (folder / f"{workload.slug(task)}.fnx").write_text(f"{folder.name} {task}")
        rows.append(f"{task},ok,1.0,1.0,1,1,1,p,")
    (folder / "compile.csv").write_text("\n".join(rows) + "\n")
    return folder


def run(out, bundles, resume=()):
    store = Store(out / "suite.jsonl", list(resume))
    options = SuiteOptions(tuple(TASKS), bundles, out, workers=2, budget_s=60.0)
    said = []
    Suite(options, store, said.append, lambda: None, fake_worker.serve).run()
    rows = {
        name: results.rows(store.records, folder, TRACKS[name], TASKS)
        for name, folder in bundles.items()
    }
    return store, {name: [row.status for row in rows[name]] for name in rows}, said


@pytest.fixture
def bundles(tmp_path):
    return {name: make_bundles(tmp_path / name) for name in ("A", "B")}


def test_deaths_are_rows_and_the_rest_is_done(tmp_path, bundles):
    store, statuses, said = run(tmp_path / "out", bundles)
    # One process dies compiling the second task, one checking the third in track A, one timing the fourth.
    assert statuses["A"] == ["ok", "ok", "crashed", "crashed", "wrong", "wrong"]
    assert statuses["B"] == ["ok", "ok", "ok", "crashed", "wrong", "wrong"]
    assert read_records(tmp_path / "out/suite.jsonl") == store.records
    timed = [record for record in store.records if record["verb"] == "time"]
    assert [record["task"] for record in timed] == TASKS
    assert set(timed[-1]["times"]) == {"eager", "compile"}, "what is wrong is not timed"
    assert said.count("check L1/25_Swish: CUDA out of memory") == 2, (
        "tried again when others are done"
    )


def test_what_is_done_is_not_done_again_unless_a_bundle_changed(tmp_path, bundles):
    first, statuses, _ = run(tmp_path / "one", bundles)
    again, same, _ = run(tmp_path / "two", bundles, [tmp_path / "one/suite.jsonl"])
    assert (again.records, same) == (first.records, statuses)
    (bundles["B"] / f"{workload.slug(TASKS[0])}.fnx").write_text("another")
    changed, *_ = run(tmp_path / "three", bundles, [tmp_path / "one/suite.jsonl"])
    new = changed.records[len(first.records) :]
    assert {record["task"] for record in new} == {TASKS[0]}
    assert {record["verb"] for record in new} == {"check", "time"}


def test_a_record_that_was_cut_off_is_left_out(tmp_path):
    path = tmp_path / "suite.jsonl"
    path.write_text('{"verb": "time", "task": "L1/19_ReLU"}\n{"verb": "ti')
    assert [record["verb"] for record in read_records(path)] == ["time"]
