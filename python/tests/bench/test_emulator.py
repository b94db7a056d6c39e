"""The whole harness on the emulator, against onnxruntime."""

import json
import subprocess

import pytest

pytest.importorskip("torch", reason="the benchmark needs torch")
onnx = pytest.importorskip("onnx", reason="the models are made with onnx")
pytest.importorskip("onnxruntime", reason="the reference is onnxruntime")

from fornax.bench import cli, workload  # noqa: E402


def compile_model(program, folder, op):
    """`y = op(x, w)` row by row, then a sum over rows, as a model and as a bundle."""
    helper = onnx.helper
    nodes = [
        helper.make_node(op, ["x", "w"], ["h"], name="first"),
        helper.make_node("Tanh", ["h"], ["t"], name="second"),
        helper.make_node("ReduceMean", ["t"], ["y"], name="third", keepdims=0, axes=[1]),
    ]
    floats = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", floats, [4, 33])],
        [helper.make_tensor_value_info("y", floats, [4])],
        [helper.make_tensor("w", floats, [33], [0.1 * i for i in range(33)])],
    )
    opset = helper.make_opsetid("", 17)
    model, bundle = folder / f"{op}.onnx", folder / f"{op}.fnx"
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), model)
    command = [program, "compile", model, "-o", bundle, "--target", "sm_80"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return str(model), str(bundle)


def bench(capsys, model, bundle):
    options = ["--against", "onnxruntime", "--device", "emulator", "--track", "A", "--json"]
    status = cli.main([model, "--bundle", bundle, *options, "--budget-s", "0"])
    return status, json.loads(capsys.readouterr().out)


def test_a_right_bundle_is_timed_in_turn_with_onnxruntime(program, tmp_path, capsys):
    status, result = bench(capsys, *compile_model(program, tmp_path, "Add"))
    assert status == 0
    assert (result["fault"], set(result["times"])) == ("", {"fornax", "onnxruntime"})
    assert result["times"]["fornax"]["cold"]["calls"] >= 3
    assert 0 < result["error"] < 1e-6
    assert result["prepare_s"]["fornax"] > 0


def test_models_need_no_tables_and_may_have_open_sizes(program, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(workload, "_suite_folder", lambda: None)
    for known in (workload.baseline, workload.remarks):
        known.cache_clear()
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Tanh", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", floats, ["batch", 3])],
        [helper.make_tensor_value_info("y", floats, ["batch", 3])],
    )
    model, bundle = tmp_path / "open.onnx", tmp_path / "open.fnx"
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), model)
    subprocess.run([program, "compile", model, "-o", bundle, "--target", "sm_80"], check=True)
    arguments = [str(model), "--bundle", str(bundle), "--against", "onnxruntime", "--budget-s", "0"]
    arguments += ["--device", "emulator", "--track", "A"]
    assert cli.main([*arguments, "--dim", "batch=5"]) == 0
    assert "correct" in capsys.readouterr().out
    assert cli.main(arguments) == 2
    assert "--dim" in capsys.readouterr().err
    for known in (workload.baseline, workload.remarks):
        known.cache_clear()


def test_a_bundle_of_another_model_is_wrong(program, tmp_path, capsys):
    model, _ = compile_model(program, tmp_path, "Add")
    _, other = compile_model(program, tmp_path, "Sub")
    status, result = bench(capsys, model, other)
    assert status == 1
    assert "in the norm" in result["fault"]
    assert "fornax" not in result["times"]


def test_what_does_not_go_together_is_refused(program, tmp_path, capsys):
    model, bundle = compile_model(program, tmp_path, "Add")
    assert cli.main([model, "--bundle", bundle, "--against", "eager", "--device", "emulator"]) == 2
    assert "onnxruntime" in capsys.readouterr().err


MODULE = """
import torch

class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.layer = torch.nn.Linear(features, 3)

    def forward(self, x):
        return torch.relu(self.layer(x))

def get_inputs():
    return [torch.randn(4, 8)]

def get_init_inputs():
    return [8]
"""


def test_a_python_file_is_exported_compiled_and_compared_with_eager(
    program, tmp_path, capsys, monkeypatch
):
    pytest.importorskip("onnxscript", reason="torch's exporter needs onnxscript")
    monkeypatch.setenv("FORNAX", str(program))
    path = tmp_path / "task.py"
    path.write_text(MODULE)
    options = [
        "--against",
        "eager",
        "--device",
        "emulator",
        "--precision",
        "fp32",
        "--budget-s",
        "0",
    ]
    status = cli.main([str(path), *options])
    said = capsys.readouterr()
    assert status == 0, said.err
    assert "task, track B: correct" in said.out
    assert {"fornax", "eager"} <= {line.split()[0] for line in said.out.splitlines() if line}


def test_a_python_file_without_a_model_is_refused(tmp_path, capsys):
    path = tmp_path / "task.py"
    path.write_text("def get_inputs(): return []")
    assert cli.main([str(path), "--device", "emulator"]) == 2
    assert "it must define Model, get_inputs() and get_init_inputs()" in capsys.readouterr().err
