"""Bundles of the zoo's models."""

import subprocess
from functools import cache

import pytest
from zoo import ZOO, absent, find_program

import fornax


@pytest.fixture(scope="session")
def program():
    if find_program() is None:
        absent("there is no target/debug/fornax: cargo build -p fornax-compiler, or set FORNAX")
    return find_program()


@pytest.fixture(scope="session")
def compiled(program, tmp_path_factory):
    """Compiles a model of the zoo, once per set of options."""
    folder = tmp_path_factory.mktemp("bundles")

    @cache
    def compile_model(name, *options):
        bundle = folder / f"{len(list(folder.iterdir()))}.fnx"
        command = [program, "compile", ZOO / f"{name}.onnx", "-o", bundle, "--target", "sm_80", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return bundle

    return compile_model


@pytest.fixture(scope="session")
def mlp(compiled):
    """A bundle with its weights inside and a batch of any size."""
    return compiled("mlp")


@pytest.fixture(scope="session")
def open_mlp(compiled):
    """A bundle without its weights."""
    return compiled("mlp", "--weights", "external")


@pytest.fixture
def loaded_mlp(mlp):
    return fornax.load(mlp, device="emulator")
