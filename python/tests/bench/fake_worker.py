"""A worker of the suite that needs no GPU and dies on some orders."""

import os

from fornax.bench.worker import Reply

RIGHT = {"norm": 1e-7, "worst": 1e-6, "outside": 0, "not_finite": 0}
NAMES = ("eager", "compile", "fornax-A", "fornax-B")


def serve(connection):
    connection.send("ready")
    while (order := connection.recv()) is not None:
        fault = "CUDA out of memory" if order.verb == "check" and "L1/25" in order.task else ""
        result = {} if fault else ANSWERS[order.verb](order)
        connection.send(Reply(order, result, fault, seconds=0.1))


def compile_task(order):
    if "L1/20" in order.task:
        os._exit(3)
    return {"faults": {}}


def check(order):
    if "L1/21" in order.task and "A" in order.bundles:
        os._exit(4)
    found = {"fault": "", "error": RIGHT, "eager_error": RIGHT, "notes": []}
    wrong = {**found, "fault": "error 1.0 in the norm"}
    return {track: wrong if "L1/24" in order.task else found for track in order.bundles}


def time_task(order):
    if "L1/22" in order.task:
        os._exit(5)
    return {
        "times": {name: {"cold": {"median": 9.0}} for name in NAMES if timed(name, order)},
        "after": {track: {"fault": ""} for track in order.bundles},
        "faults": {},
    }


def timed(name, order):
    return not name.startswith("fornax") or name[-1] in order.bundles


ANSWERS = {"compile": compile_task, "check": check, "time": time_task}
