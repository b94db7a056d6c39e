"""Times, tables and what is reported of them."""

import math

import pytest

pytest.importorskip("torch", reason="the benchmark needs torch")

from fornax.bench import results, timing, workload  # noqa: E402
from fornax.bench.compare import Error  # noqa: E402
from fornax.bench.compile import CompileRow, compile_suite, grouped_failures, read_rows  # noqa: E402
from fornax.bench.floor import physical_floor_ms  # noqa: E402
from fornax.bench.tracks import TRACKS, Outcome, report, summary  # noqa: E402
from fornax.bench.workload import listed_tasks  # noqa: E402

RELU = "L1/19_ReLU"


class RecordingClock:
    """Notes the order of calls."""

    def __init__(self, call_ms):
        self.calls, self.call_ms = [], call_ms

    def cold_ms(self, call):
        self.calls.append(("cold", call()))
        return self.call_ms

    def warm_ms(self, call):
        self.calls.append(("warm", call()))
        return 1.0, 2.0


@pytest.mark.parametrize(("call_ms", "size"), [(100.0, 1), (2.5, 3)])
def test_subjects_are_timed_in_turn(call_ms, size):
    clock = RecordingClock(call_ms)
    times = timing.measure({"a": lambda: "a", "b": lambda: "b"}, clock, budget_s=0.0)
    extra = 1 if size > 1 else 0
    blocks = [[("cold", n)] * (size + extra) + [("warm", n)] * size for n in "ab"]
    assert clock.calls == [("cold", "a"), ("cold", "b"), *(blocks[0] + blocks[1]) * 3]
    assert times["a"].cold.calls == 3 * size
    assert times["b"].wall.median == 2.0


def test_samples_hold_median_and_quartiles():
    sample = timing.Sample.of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (sample.lower, sample.median, sample.upper, sample.calls) == (2.0, 3.0, 4.0, 5)


def record(verb, **fields):
    return {"verb": verb, "task": RELU, "modes": [], "bundles": {}, **fields}


def sample(ms):
    return {"cold": {"median": ms}}


ERROR = {"norm": 1e-7, "worst": 1e-6, "outside": 0, "not_finite": 0}
RIGHT = record(
    "check", track="B", fault="", error=ERROR, eager_error=ERROR, notes=[], kernels=1, peak_bytes=0
)


def table(tmp_path, *records):
    text = "task,status,compile_s,cpu_s,peak_bytes,kernels,bundle_bytes,precision,error\n"
    text += (
        f"{RELU},ok,1.5,1.0,1000,1,2000,torch,\nL1/20_LeakyReLU,failed,1,1,1,0,0,torch,no such op\n"
    )
    (tmp_path / "compile.csv").write_text(text)
    rows = results.rows(list(records), tmp_path, TRACKS["B"], listed_tasks())
    return {row.task: row for row in rows}


def timed(ours_ms):
    times = {"fornax-B": sample(ours_ms), "eager": sample(3.2), "compile": sample(3.3)}
    return record("time", fault="", times=times, faults={}, after={"B": {"fault": ""}})


def test_every_listed_task_has_a_row(tmp_path):
    rows = table(tmp_path)
    assert list(rows) == listed_tasks()
    assert rows["L1/20_LeakyReLU"].status == "no bundle"
    assert rows["L1/20_LeakyReLU"].note == "no such op"
    assert rows["L3/39_GRU"].note == "not compiled"
    assert rows[RELU].status == "not run"


def test_a_right_and_timed_task_is_ok(tmp_path):
    row = table(tmp_path, RIGHT, timed(3.0))[RELU]
    assert (row.status, row.ours_ms, row.eager_ms, row.compile_ms) == ("ok", "3", "3.2", "3.3")
    assert row.outcome(TRACKS["B"]).speedup == pytest.approx(3.2 / 3.0)


def test_a_time_below_the_physical_floor_is_a_fault(tmp_path):
    assert physical_floor_ms(RELU, "B") > 2
    row = table(tmp_path, RIGHT, timed(1.0))[RELU]
    assert row.status == "below floor"
    assert row.outcome(TRACKS["B"]).speedup is None


def test_parameters_may_have_been_packed_into_half_their_bytes_in_track_a():
    # 128 x 32768 by 32768 x 32768: the weights, 4.3 GB as float32, are all there is.
    for track, n_bytes in [("A", 2), ("B", 4)]:
        floor = physical_floor_ms("L2/55_Matmul_MaxPool_Sum_Scale", track)
        least = n_bytes * 32768**2 / 4.8e12 * 1e3
        assert least < floor < 1.1 * least


def test_a_wrong_task_keeps_the_baselines_and_gets_no_time(tmp_path):
    row = table(tmp_path, {**RIGHT, "fault": "error 1 in the norm"}, timed(3.0))[RELU]
    assert (row.status, row.ours_ms, row.eager_ms) == ("wrong", "", "3.2")


def test_times_of_an_earlier_bundle_do_not_count(tmp_path):
    row = table(tmp_path, timed(3.0), {**RIGHT, "bundles": {"B": "another"}})[RELU]
    assert (row.status, row.ours_ms, row.eager_ms, row.note) == ("not run", "", "3.2", "not timed")


def test_torch_is_compared_as_it_was_in_the_same_run(tmp_path):
    alone = record("time", fault="", times={"eager": sample(2.9), "max-autotune": sample(2.8)})
    row = table(tmp_path, RIGHT, timed(3.0), {**alone, "bundles": {"B": "other"}})[RELU]
    assert (row.eager_ms, row.max_autotune_ms) == ("3.2", "2.8")


def test_what_turns_wrong_during_the_timing_is_wrong(tmp_path):
    turned = timed(3.0)
    turned["after"]["B"]["fault"] = "error 1 in the norm"
    assert table(tmp_path, RIGHT, turned)[RELU].status == "wrong"


def test_tables_are_read_as_written(tmp_path):
    rows = list(table(tmp_path, RIGHT, timed(3.0)).values())
    results.write(tmp_path / "t.csv", rows, {"device": "none"})
    assert (tmp_path / "t.csv").read_text().startswith("# device: none\n")
    assert results.read(tmp_path / "t.csv") == rows


def outcome(ours, baseline, fault="", trivial=False):
    return Outcome("L1/1_x", ours, baseline, 0.5, trivial, fault)


def test_failures_count_as_not_faster_and_are_apart_from_the_means():
    rows = [outcome(1.0, 2.0), outcome(1.0, 8.0), outcome(1.0, 1.0), outcome(2.0, 1.0)]
    rows.append(outcome(None, 1.0, fault="wrong: zeros"))
    line = summary(rows, "all")
    assert "correct 4 (80.0 %), faster 2 (40.0 %), equal 1 (20.0 %), slower 1 (20.0 %)" in line
    assert f"geometric mean {math.prod([2, 8, 1, 0.5]) ** 0.25:.3f}, median 1.500" in line
    assert "L1/1_x: wrong: zeros" in report(rows)


def test_trivial_tasks_are_also_left_out():
    text = report([outcome(1.0, 2.0), outcome(0.001, 9.0, trivial=True)])
    assert "trivial, 1 tasks" in text
    assert "geometric mean 2.000" in text.splitlines()[-1]


def test_track_b_allows_half_more_than_eagers_error_and_an_ulp():
    eager = Error(1e-6, 1e-5, 0, 0)
    assert TRACKS["B"].fault(Error(1.6e-6, 1e-5, 0, 0), eager) == ""
    assert "norm" in TRACKS["B"].fault(Error(1.7e-6, 1e-5, 0, 0), eager)
    assert TRACKS["A"].fault(Error(1.7e-6, 1e-5, 0, 0), eager) == ""
    assert "NaN" in TRACKS["A"].fault(Error(0, 0, 0, 1), eager)
    assert "norm" in TRACKS["A"].fault(Error(math.nan, 0, 0, 0), eager)
    assert "off by" in TRACKS["A"].fault(Error(1e-3, 0.5, 0, 0), eager)


def test_rescaled_draws_are_judged_by_the_norm():
    track, rough = TRACKS["A"], Error(8e-3, 1e-2, 4, 0)
    outside = Error(9e-3, 2e-2, 7, 0)
    assert "beyond" in track.fault(outside, rough)
    assert track.fault(outside, rough, published=False) == ""
    # Where eager mode has about as many beyond it, they say nothing.
    assert track.fault(outside, Error(9e-3, 2e-2, 5, 0)) == ""
    assert track.fault(Error(1.1e-2, 2e-2, 7, 0), rough, published=False) == ""
    assert "norm" in track.fault(Error(1.3e-2, 2e-2, 7, 0), rough, published=False)
    assert "norm" in track.fault(Error(1.0, 1.0, 7, 0), Error(1e-6, 1e-5, 0, 0), published=False)


def test_some_tasks_are_compiled_more_accurately():
    assert workload.precision("L3/49_Mamba2ReturnFinalState", "tf32") == "fp32"
    assert workload.precision("L3/49_Mamba2ReturnFinalState", "torch") == "torch"
    assert workload.precision("L1/19_ReLU", "tf32") == "tf32"


PROGRAM = """#!/bin/sh
case "$*" in *"--weights present"*"--precision fp32"*) ;; *) exit 3 ;; esac
case "$2" in
  *19_ReLU*) echo bytes > "$4"; echo '{"kernels": 3}' ;;
  *20_*) echo 'error[onnx]: node "a" number 17 is wrong' >&2; exit 2 ;;
  *21_*) echo 'error[onnx]: node "b" number 18 is wrong' >&2; exit 2 ;;
  *) exec sleep 60 ;;
esac
"""


def test_the_batch_goes_on_after_failures_and_resumes(tmp_path):
    program = tmp_path / "program"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    tasks = [RELU, "L1/20_LeakyReLU", "L1/21_Sigmoid", "L1/22_Tanh", "L1/90_cumprod"]
    for task in tasks[:4]:
        (tmp_path / f"{task.replace('/', '_')}.onnx").write_text("model")
    out = tmp_path / "out"
    rows = compile_suite(program, tmp_path, out, tasks, "fp32", timeout_s=1.0)
    assert [row.status for row in rows] == ["ok", "failed", "failed", "timeout", "failed"]
    assert rows[0].kernels == 3
    text = (out / "failures.txt").read_text()
    assert text.startswith("1 of 5 compiled")
    assert "2 x error[onnx]" in text
    program.write_text("#!/bin/sh\nexit 2\n")
    again = compile_suite(program, tmp_path, out, tasks, "fp32", timeout_s=1.0)
    assert again[0] == rows[0], "what is compiled is kept"
    assert read_rows(out)[RELU] == rows[0]


def test_names_and_numbers_do_not_part_groups():
    rows = [CompileRow("L1/1_a", "failed", error=f'no "{i}" at {i}') for i in range(3)]
    assert "3 x" in grouped_failures(rows)
