"""Fills carry/ with what the GPU suite needs on a machine without Rust and LLVM.

    python bench/prepare_gpu_suite.py FORNAX [--models-only]

FORNAX is the full program. Compiles the zoo and the fetched models to carry/models/, and each node test
that the conformance manifest lists as passing to carry/cases/, with its recorded inputs and outputs.
Then build the program without LLVM and copy it to carry/fornax:

    cargo build --release -p fornax-compiler --no-default-features && cp target/release/fornax carry/
"""

import concurrent.futures
import shutil
import subprocess
import sys
from pathlib import Path

import numpy
import onnx
from onnx import numpy_helper

ROOT = Path(__file__).resolve().parent.parent
CARRY = ROOT / "carry"
NODE_TESTS = ROOT / ".cache" / "node_tests"

# Model, arguments of compile, arguments of validate and profile.
MODELS = {
    "mlp": ("models/zoo/mlp.onnx", ["--dim", "batch=64"], []),
    "resnet_block": ("models/zoo/resnet_block.onnx", ["--dim", "batch=16"], []),
    "transformer_block": ("models/zoo/transformer_block.onnx", ["--dim", "batch=16"], []),
    "depthwise_cnn": ("models/zoo/depthwise_cnn.onnx", ["--dim", "batch=16"], []),
    "recommender": (
        "models/zoo/recommender.onnx", ["--dim", "batch=64"], ["--input-range", "x1=0..199"],
    ),
    "transformer_block_any_batch": ("models/zoo/transformer_block.onnx", [], ["--dim", "batch=7"]),
    "magika": (
        ".cache/models/magika.onnx", ["--shape", "bytes=1,2048"], ["--input-range", "bytes=0..256"],
    ),
    "ocr_det": (".cache/models/ocr_det.onnx", ["--shape", "x=1,3,64,64"], []),
}


def compile_model(fornax, model, out, arguments):
    command = [fornax, "compile", str(model), "-o", str(out), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    return None if done.returncode == 0 else done.stderr.strip()


def record(folder, target):
    """Writes a node test's inputs and outputs by name; false where numpy cannot hold one."""
    graph = onnx.load(folder / "model.onnx").graph
    arrays = {}
    for kind, ports in (("input", graph.input), ("output", graph.output)):
        for number, port in enumerate(ports):
            tensor = onnx.TensorProto.FromString((folder / f"{kind}_{number}.pb").read_bytes())
            array = numpy.ascontiguousarray(numpy_helper.to_array(tensor))
            if array.dtype.kind not in "fiub" or array.dtype.name == "bfloat16":
                return False
            arrays[port.name] = array.reshape(numpy_helper.to_array(tensor).shape)
    numpy.savez(target, **arrays)
    return True


def main(fornax, models_only):
    for folder in ("models", "cases"):
        shutil.rmtree(CARRY / folder, ignore_errors=True)
        (CARRY / folder).mkdir(parents=True)
    for name, (model, compile_arguments, arguments) in MODELS.items():
        out = CARRY / "models" / f"{name}.fnx"
        error = compile_model(fornax, ROOT / model, out, compile_arguments)
        if error:
            sys.exit(f"{name}: {error}")
        out.with_suffix(".args").write_text("\n".join(arguments))
    if models_only:
        return
    manifest = (ROOT / "tests/conformance/node.txt").read_text().splitlines()
    names = [line.split()[0] for line in manifest if line.split()[1:2] == ["pass"]]

    def case(name):
        out = CARRY / "cases" / f"{name}.fnx"
        if not record(NODE_TESTS / name, out.with_suffix(".npz")):
            return "not recorded: an element type that numpy does not have"
        error = compile_model(fornax, NODE_TESTS / name / "model.onnx", out, ["--target", "sm_90a"])
        if error:
            out.with_suffix(".npz").unlink()
        return error

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for name, error in zip(names, pool.map(case, names)):
            if error:
                print(f"{name}: {error}", file=sys.stderr)
    print(f"{len(list((CARRY / 'cases').glob('*.fnx')))} of {len(names)} node tests compiled")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], "--models-only" in sys.argv[2:])
