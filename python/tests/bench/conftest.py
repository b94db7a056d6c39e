"""Tiny tasks for the harness."""

import pytest


@pytest.fixture
def tiny():
    """`relu(linear(x))` on the CPU."""
    from fornax.bench import workload
    from fornax.bench.problem import TableProblem
    from tiny_task import TINY

    problem = TableProblem(workload.parse(TINY), "cpu")
    problem.allocate()
    return problem
