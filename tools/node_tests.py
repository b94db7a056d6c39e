"""Writes the node tests of the installed onnx package: models with recorded inputs and outputs.

    python tools/node_tests.py    fill .cache/node_tests/

The package holds them as Python code, which draws inputs with a fixed seed. Each becomes a folder with
model.onnx, and input_N.pb and output_N.pb (serialized TensorProto, or another kind of value where the
model says so). A file named `version` is written last and tells that the folder is whole.
"""

import shutil
import sys
import warnings
from pathlib import Path

import onnx
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".cache" / "node_tests"

KINDS = {
    "map_type": numpy_helper.from_dict,
    "sequence_type": numpy_helper.from_list,
    "optional_type": numpy_helper.from_optional,
    "tensor_type": numpy_helper.from_array,
}


def serialized(value, info):
    if isinstance(value, TensorProto):
        return value.SerializeToString()
    return KINDS[info.type.WhichOneof("value")](value, info.name).SerializeToString()


def write(case):
    folder = FOLDER / case.name
    folder.mkdir()
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    ((inputs, outputs),) = case.data_sets
    graph = case.model.graph
    for kind, values, infos in ("input", inputs, graph.input), ("output", outputs, graph.output):
        for number, (value, info) in enumerate(zip(values, infos, strict=True)):
            (folder / f"{kind}_{number}.pb").write_bytes(serialized(value, info))


def main():
    version = FOLDER / "version"
    if version.exists() and version.read_text() == onnx.__version__:
        return
    print(f"== writing the node tests of onnx {onnx.__version__}", file=sys.stderr)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    # Overflow and division by zero are what some of the tests are about.
    warnings.simplefilter("ignore", RuntimeWarning)
    for case in collect_testcases():
        write(case)
    version.write_text(onnx.__version__)


if __name__ == "__main__":
    main()
