"""The whole suite on one GPU: `python -m fornax.bench suite`.

Two phases. First, one process per processor core compiles the torch modules, without a launch, while one
process checks all bundles against the reference; the GPU is shared and nothing is timed. Then the tasks
are timed one after the other, each by the process that compiled it, in turn within the process, while all
other processes sleep and the GPU and the cores are its own.

Every answer is appended to `suite.jsonl` at once; given back with `--resume`, what it holds is not done
again, unless a bundle changed. The tables `kernelbench-<track>.csv` are made from it.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from . import workload as tables
from .worker import Order, Reply, serve

#: GPU memory, in bytes, for tasks that are being compiled (inputs and weights only) and checked.
COMPILE_BYTES = 20e9
CHECK_BYTES = 84e9
#: What a check takes of memory: the bytes of inputs, weights and outputs times this. The reference's are
#: twice as large, some intermediates live at once, and results of eager mode and of two bundles are kept.
CHECK_FACTOR = 5.0
#: Processes that check.
CHECKERS = 4
#: Seconds an order may take before its process is ended.
LIMIT_S = {"compile": 200.0, "check": 90.0, "time": 60.0}
#: Share of the time budget after which no further compilations are started.
COMPILE_SHARE = 0.45
#: Tasks between two writings of the tables.
SAVE_EVERY = 10
#: Modes of torch that measure while they compile, and so need the GPU to themselves.
TUNING_MODES = {"max-autotune"}


@dataclass(frozen=True)
class SuiteOptions:
    """What to run. `bundles`: folder of bundles by track. `workers`: processes that compile."""

    tasks: tuple[str, ...]
    bundles: dict[str, Path]
    out: Path
    modes: tuple[str, ...] = ("eager", "compile", "reduce-overhead")
    workers: int = 14
    seeds: int = 2
    budget_s: float = 540.0
    task_s: float = 0.6


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records of a file; a last line that was cut off is left out."""
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records


class Store:
    """The answers so far, a JSON object a line: `verb`, `task`, `modes`, `bundles` and the result."""

    def __init__(self, path: Path, earlier: list[Path]):
        self.path = path
        self.records: list[dict[str, Any]] = []
        for source in earlier:
            self.records += read_records(source)
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in self.records)

    def add(self, record: dict[str, Any]) -> None:
        """Appends a record, on disk at once."""
        self.records.append(record)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def find(self, verb: str, task: str, bundles: dict[str, str], modes: tuple[str, ...]) -> Any:
        """The newest record of these bundles and at least these modes, or none."""
        for record in reversed(self.records):
            if (
                (record["verb"], record["task"]) == (verb, task)
                and record["bundles"] == bundles
                and set(modes) <= set(record["modes"])
            ):
                return record
        return None


class _Process:
    """A worker process and the order it is at."""

    def __init__(self, context: Any, main: Callable[[Connection], None]):
        self.connection: Connection
        self.connection, other = context.Pipe()
        self.process = context.Process(target=main, args=(other,), daemon=True)
        self.process.start()
        other.close()
        self.ready = False
        self.order: Order | None = None
        self.started = time.monotonic()
        self.holds: set[str] = set()

    def give(self, order: Order) -> None:
        """Sends an order."""
        self.order, self.started = order, time.monotonic()
        self.connection.send(order)

    def take(self) -> Reply | None:
        """The answer that is there; none for the sign of life a process starts with."""
        order, self.order = self.order, None
        try:
            message = self.connection.recv()
        except (EOFError, OSError):
            self.process.join(5)
            fault = f"the process ended with status {self.process.exitcode}"
            return Reply(order, fault=fault, poisoned=True) if order else None
        if message == "ready":
            self.ready = True
            return None
        return message

    def overdue(self) -> bool:
        """Whether its order takes too long."""
        return self.order is not None and time.monotonic() - self.started > LIMIT_S[self.order.verb]

    def end(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.join(5)
        self.connection.close()


@dataclass
class _Queue:
    """Orders that processes of one kind take, and the processes."""

    waiting: deque[Order] = field(default_factory=deque)
    processes: list[_Process] = field(default_factory=list)


class Suite:
    """A run of the suite. `say` tells of progress; `save` makes the tables, now and then;
    `main` is what processes run."""

    def __init__(
        self,
        options: SuiteOptions,
        store: Store,
        say: Callable[[str], None],
        save: Callable[[], None],
        main: Callable[[Connection], None] = serve,
    ):
        self.options = options
        self.store = store
        self.say = say
        self.save = save
        self.main = main
        self.started = time.monotonic()
        self._context = multiprocessing.get_context("spawn")
        self._hashes: dict[str, str] = {}
        self._compile = _Queue()
        self._check = _Queue()
        self._retried: set[str] = set()

    def run(self) -> None:
        """Does what is left to do within the time budget."""
        tasks = [task for task in self.options.tasks if task in tables.suite()]
        untimed = [task for task in tasks if not self._timed(task)]
        unchecked = [t for t in tasks if self._bundles(t) and not self._found("check", t)]
        heavy_first = sorted(untimed, key=lambda task: -len(tables.suite()[task].nodes))
        tuning = TUNING_MODES & set(self.options.modes)
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(os.cpu_count() or 1) if tuning else "1"
        if not tuning:
            self._compile.waiting.extend(self._order("compile", task) for task in heavy_first)
        self._check.waiting.extend(self._order("check", task) for task in unchecked)
        n_workers = min(1, len(untimed)) if tuning else min(self.options.workers, len(untimed))
        try:
            n_checkers = min(CHECKERS, len(unchecked))
            self._check.processes = [self._spawn() for _ in range(n_checkers)]
            self._compile.processes = [self._spawn() for _ in range(n_workers)]
            self._prepare()
            for process in self._check.processes:
                process.end()
            self._time(untimed)
        finally:
            for process in (*self._compile.processes, *self._check.processes):
                process.end()

    def left_s(self) -> float:
        """Seconds left of the budget."""
        return self.options.budget_s - (time.monotonic() - self.started)

    def _prepare(self) -> None:
        until = self.options.budget_s * (1 - COMPILE_SHARE)
        while self._busy() or (
            (self._compile.waiting or self._check.waiting) and self.left_s() > until
        ):
            if self.left_s() > until:
                self._hand_out(self._compile, COMPILE_BYTES, _compile_bytes)
                self._hand_out(self._check, CHECK_BYTES, _check_bytes)
            processes = [*self._compile.processes, *self._check.processes]
            for connection in wait([p.connection for p in processes], timeout=1.0):
                (process,) = [p for p in processes if p.connection is connection]
                self._receive(process)
            for process in processes:
                if process.overdue():
                    fault = f"no answer in {LIMIT_S[process.order.verb]:.0f} s"
                    self._settle(process, Reply(process.order, fault=fault, poisoned=True))
        self.say(f"prepared in {time.monotonic() - self.started:.0f} s")

    def _busy(self) -> bool:
        return any(p.order for q in (self._compile, self._check) for p in q.processes)

    def _hand_out(self, queue: _Queue, limit: float, need: Callable[[str], float]) -> None:
        for process in queue.processes:
            if not process.ready or process.order or not queue.waiting:
                continue
            taken = sum(need(p.order.task) for p in queue.processes if p.order)
            if taken and taken + need(queue.waiting[0].task) > limit:
                return
            process.give(queue.waiting.popleft())

    def _receive(self, process: _Process) -> None:
        reply = process.take()
        if reply is not None:
            self._settle(process, reply)
        elif not process.ready:
            raise tables.BenchError("a process of the suite does not start; see its messages above")
        elif not process.process.is_alive():
            self._replace(process)

    def _settle(self, process: _Process, reply: Reply) -> None:
        order = reply.order
        if order.verb == "compile" and not reply.poisoned:
            process.holds.add(order.task)
        if order.verb == "check" and not self._retry(order, reply):
            self._record_check(order, reply)
        if reply.fault:
            self.say(f"{order.verb} {order.task}: {reply.fault}")
        if reply.poisoned:
            self._replace(process)

    def _retry(self, order: Order, reply: Reply) -> bool:
        """Queues a check again, once, that found too little memory: others took it."""
        faults = [reply.fault, *(found.get("fault", "") for found in reply.result.values())]
        lacking = any("out of memory" in text.lower().replace("_", " ") for text in faults)
        if not lacking or order.task in self._retried:
            return False
        self._retried.add(order.task)
        self._check.waiting.append(order)
        return True

    def _record_check(self, order: Order, reply: Reply) -> None:
        """Keeps what was found. After a crash the tracks that did not cause it are tried again, alone."""
        result = dict(reply.result)
        if reply.poisoned and len(order.bundles) > 1:
            innocent = [t for t in order.bundles if not result.get(t, {}).get("fault")]
            self._check.waiting.extendleft(
                Order("check", order.task, {t: order.bundles[t]}, order.modes, order.seeds)
                for t in innocent
            )
            result = {t: result[t] for t in result if t not in innocent}
        elif reply.fault:
            missing = {"fault": f"crashed: {reply.fault}" if reply.poisoned else reply.fault}
            result = {track: result.get(track, missing) for track in order.bundles}
        for track, found in result.items():
            self._record("check", order, {"track": track, **found}, reply)

    def _time(self, tasks: list[str]) -> None:
        for done, task in enumerate(tasks):
            if done % SAVE_EVERY == 0:
                self.save()
            holder = self._holder(task)
            if self.left_s() < 5 or (holder is None and not self._may_compile_late()):
                continue
            process = holder or self._compile.processes[0]
            if not self._await_ready(process):
                continue
            order = self._order("time", task)
            right = {t: b for t, b in order.bundles.items() if not self._fault(task, t)}
            order = Order("time", task, right, order.modes, order.seeds, self.options.task_s)
            process.give(order)
            answered = process.connection.poll(min(self._time_limit(holder), max(1, self.left_s())))
            fault = "no answer in time"
            reply = process.take() if answered else Reply(order, fault=fault, poisoned=True)
            if reply is None:
                continue
            if self.left_s() > 0 or not reply.fault:
                self._record("time", order, {**reply.result, "fault": reply.fault}, reply)
            self.say(f"time {task}: {reply.seconds:.1f} s {reply.fault}")
            if reply.poisoned:
                self._replace(process)

    def _time_limit(self, holder: _Process | None) -> float:
        return LIMIT_S["time"] + (0 if holder else LIMIT_S["compile"])

    def _may_compile_late(self) -> bool:
        """Whether tasks that nobody holds are compiled while others wait to be timed."""
        return (
            bool(TUNING_MODES & set(self.options.modes))
            or self.left_s() > 0.2 * self.options.budget_s
        )

    def _await_ready(self, process: _Process) -> bool:
        if not process.ready and process.connection.poll(60):
            process.take()
        return process.ready

    def _holder(self, task: str) -> _Process | None:
        return next((p for p in self._compile.processes if task in p.holds), None)

    def _replace(self, process: _Process) -> None:
        process.end()
        for queue in (self._compile, self._check):
            if process in queue.processes:
                queue.processes[queue.processes.index(process)] = self._spawn()

    def _spawn(self) -> _Process:
        return _Process(self._context, self.main)

    def _order(self, verb: str, task: str) -> Order:
        options = self.options
        bundles = {track: str(path) for track, path in self._bundles(task).items()}
        return Order(verb, task, bundles, options.modes, options.seeds, options.task_s)

    def _bundles(self, task: str) -> dict[str, Path]:
        paths = {t: f / f"{tables.slug(task)}.fnx" for t, f in self.options.bundles.items()}
        return {track: path for track, path in paths.items() if path.exists()}

    def _hash(self, path: Path | str) -> str:
        key = str(path)
        if key not in self._hashes:
            self._hashes[key] = hashlib.sha256(Path(key).read_bytes()).hexdigest()[:16]
        return self._hashes[key]

    def _record(self, verb: str, order: Order, result: dict[str, Any], reply: Reply) -> None:
        bundles = {track: self._hash(path) for track, path in self._bundles(order.task).items()}
        self.store.add(
            {
                "verb": verb,
                "task": order.task,
                "modes": list(order.modes),
                "bundles": bundles,
                "seconds": round(reply.seconds, 2),
                **result,
            }
        )

    def _found(self, verb: str, task: str) -> Any:
        bundles = {track: self._hash(path) for track, path in self._bundles(task).items()}
        modes = self.options.modes if verb == "time" else ()
        return self.store.find(verb, task, bundles, modes)

    def _timed(self, task: str) -> bool:
        return self._found("time", task) is not None

    def _fault(self, task: str, track: str) -> str:
        """Why a task's bundle must not be timed; empty if it was checked and is right."""
        for record in reversed(self.store.records):
            if (record["verb"], record["task"], record.get("track")) == ("check", task, track):
                current = self._hash(self._bundles(task)[track])
                return record["fault"] if record["bundles"].get(track) == current else "not checked"
        return "not checked"


def _compile_bytes(task: str) -> float:
    return tables.suite()[task].nbytes


def _check_bytes(task: str) -> float:
    return CHECK_FACTOR * tables.baseline().get(task, {}).get("bytes", 0.0)
