"""The suite's tables and their modules."""

import json

import pytest

torch = pytest.importorskip("torch", reason="the benchmark needs torch")

from fornax.bench import build, fill, workload  # noqa: E402
from fornax.bench.floor import floor_ms, physical_floor_ms  # noqa: E402
from fornax.bench.problem import TableProblem  # noqa: E402
from tiny_task import TINY  # noqa: E402


def test_every_listed_task_has_a_table():
    assert len(workload.suite()) == 200
    assert set(workload.listed_tasks()) == set(workload.suite())


def test_tasks_are_chosen_by_level_number_or_name():
    assert len(workload.select(["L3"])) == 40
    assert workload.select(["L1/19", "L1_1_Square_matrix_multiplication_"]) == [
        "L1/1_Square_matrix_multiplication_",
        "L1/19_ReLU",
    ]
    with pytest.raises(workload.BenchError, match="L9"):
        workload.select(["L9"])


def test_remarks_name_listed_tasks():
    assert set(workload.remarks()) <= set(workload.listed_tasks())


def test_a_table_that_lacks_something_is_refused():
    with pytest.raises(workload.BenchError, match="nodes"):
        workload.parse({key: value for key, value in TINY.items() if key != "nodes"})


@pytest.mark.parametrize(
    "name",
    [
        "L1/5_Matrix_scalar_multiplication",  # a plain value among the inputs
        "L1/49_Max_reduction_over_a_dimension",  # a node with two results
        "L2/31_Conv2d_Min_Add_Multiply",  # lifted constants
        "L3/44_MiniGPTBlock",  # infinity
        "L3/49_Mamba2ReturnFinalState",  # tensors made on the device
    ],
)
def test_modules_have_the_tables_shapes(name):
    task = workload.suite()[workload.select([name])[0]]
    module = build.build(task, "meta")
    result = module(*build.empty_inputs(task, "meta"))
    expected = {node.name: node.out for node in task.nodes}[task.outputs[0]["ref"]]
    assert list(result.shape) == expected["shape"]


def test_random_sources_become_inputs():
    task = workload.suite()["L3/35_LSTM"]
    assert [spec.name for spec in task.inputs] == ["x", "randn", "randn_1"]


def test_the_reference_is_double_and_agrees(tiny):
    tiny.draw(3)
    (reference,) = tiny.reference()
    assert reference.dtype is torch.float64
    (eager,) = [tiny.module(*tiny.inputs)]
    torch.testing.assert_close(eager.double(), reference, rtol=1e-5, atol=1e-6)


def test_memory_is_given_back_and_taken_again(tiny):
    before = tiny.module.layer.weight.clone()
    tiny.release()
    assert tiny.module.layer.weight.numel() == 0
    tiny.allocate()
    assert torch.equal(tiny.module.layer.weight, before)


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        (["uniform", -2.0, 3.0], lambda t: -2 <= t.min() and t.max() <= 3 and t.std() > 1),
        (["normal", 5.0, 0.1], lambda t: abs(t.mean() - 5) < 0.1 and t.std() < 0.2),
        (["constant", 7.0], lambda t: bool((t == 7).all())),
        (["choice", [-1.0, 1.0]], lambda t: set(t.unique().tolist()) == {-1.0, 1.0}),
        (["integers", 0, 2], lambda t: set(t.unique().tolist()) == {0, 1, 2}),
        (["tril"], lambda t: torch.equal(t, torch.ones_like(t).tril())),
        (["upper_triangular", 1.0, 2.0], lambda t: torch.equal(t, t.triu()) and t.max() >= 1),
        (["lower_triangular", 1.0, 2.0], lambda t: torch.equal(t, t.tril()) and t.max() >= 1),
        (["symmetric", 0.0, 1.0], lambda t: torch.equal(t, t.mT) and t.std() > 0.1),
        (["symmetric_choice", [0.0, 1.0]], lambda t: torch.equal(t, t.mT) and t.max() == 1),
    ],
)
def test_fills(rule, holds):
    spec = workload.TensorSpec("t", (2, 16, 16), "float32", tuple(rule))
    first, second, other = (torch.empty(spec.shape) for _ in range(3))
    fill.fill(first, spec, seed=0)
    fill.fill(second, spec, seed=0)
    fill.fill(other, spec, seed=1)
    assert holds(first)
    assert torch.equal(first, second)
    drawn = rule[0] not in ("constant", "tril")
    assert torch.equal(first, other) != drawn


def test_rescaled_weights_keep_the_signal_alive():
    weight = workload.TensorSpec(
        "w", (64, 256), "float32", ("uniform", -1e-6, 1e-6), "w", "parameter"
    )
    drawn = torch.empty(weight.shape)
    fill.fill(drawn, fill.rescaled(weight), seed=0)
    assert drawn.std().item() == pytest.approx((2 / 256) ** 0.5, rel=0.05)
    mask = workload.TensorSpec("m", (4, 4), "float32", ("tril",), "m", "buffer")
    assert fill.rescaled(mask) == mask


def test_floors_are_ordered():
    for task in workload.listed_tasks():
        floor = floor_ms(task, "A")
        assert floor is None or floor <= floor_ms(task, "B")
        assert physical_floor_ms(task, "A") <= physical_floor_ms(task, "B")
        assert floor is None or physical_floor_ms(task, "B") <= floor * 1.01


def test_a_table_file_can_be_benched(tmp_path):
    from fornax.bench.single import Options, open_problem

    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY))
    assert isinstance(open_problem(Options(str(path), ("eager",), device="emulator")), TableProblem)
