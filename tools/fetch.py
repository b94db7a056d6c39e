"""Fetches, with pip, what tests take from packages: models that nobody here made, and ptxas.

    python tools/fetch.py                   fill .cache/
    python tools/fetch.py --check-packages  exit 0 if the packages of requirements.txt are installed

The packages are downloaded, never installed: only the files named below leave their wheels.
"""

import importlib.metadata
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"

# Package, file inside its wheel, where it goes under .cache/.
FILES = [
    ("magika==1.0.3", "magika/models/standard_v3_3/model.onnx", "models/magika.onnx"),
    (
        "rapidocr-onnxruntime==1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "models/ocr_det.onnx",
    ),
    ("nvidia-cuda-nvcc==13.0.88", "nvidia/cu13/bin/ptxas", "ptxas"),
]


def fetch(package, member, target):
    if target.exists():
        return
    print(f"== fetching {member} from {package}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
        command += ["--no-deps", "--only-binary=:all:", "-d", folder, package]
        subprocess.run(command, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(member)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    partial.write_bytes(data)
    partial.chmod(0o755 if target.suffix == "" else 0o644)
    partial.rename(target)


def packages_are_installed():
    for line in (ROOT / "tools/requirements.txt").read_text().split():
        name, version = line.split("==")
        try:
            if importlib.metadata.version(name) != version:
                return False
        except importlib.metadata.PackageNotFoundError:
            return False
    return True


if __name__ == "__main__":
    if "--check-packages" in sys.argv[1:]:
        sys.exit(0 if packages_are_installed() else 1)
    for package, member, name in FILES:
        fetch(package, member, CACHE / name)
