"""What the wheel is made of."""

import importlib.metadata
import inspect
import re
import subprocess
from pathlib import Path

import fornax
from fornax import _native

FOLDER = Path(fornax.__file__).parent


def test_the_stubs_name_what_there_is():
    stub = (FOLDER / "_native.pyi").read_text()
    typed = set(re.findall(r"def (\w+)\(", stub))
    public = {name for name in vars(_native.Model) if not name.startswith("_")}
    assert public | {"__new__", "__call__"} == typed
    assert (FOLDER / "py.typed").is_file()


def test_everything_public_is_documented():
    for name in fornax.__all__:
        if name != "compile":  # needs no torch to be imported, but is not worth it here
            assert inspect.getdoc(getattr(fornax, name)), name


def test_the_backend_is_registered():
    points = importlib.metadata.entry_points(group="torch_dynamo_backends", name="fornax")
    assert [point.value for point in points] == ["fornax._dynamo:backend"]


def test_the_compiler_has_the_version_of_the_runtime():
    wanted = [text for text in importlib.metadata.requires("fornax") if "fornax-compiler" in text]
    assert len(wanted) == 1
    assert f"fornax-compiler=={importlib.metadata.version('fornax')}" in wanted[0].replace(" ", "")


def test_the_extension_links_libc_alone():
    needed = subprocess.run(
        ["ldd", _native.__file__], capture_output=True, text=True, check=True
    ).stdout
    names = re.findall(r"^\s*(\S+?)(?:\.so\S*)? ", needed, re.MULTILINE)
    allowed = ("linux-vdso", "libc", "libgcc_s", "libm", "libpthread", "libdl", "/lib64/ld-linux")
    assert [name for name in names if not name.startswith(allowed)] == [], needed
