"""Makes the tables of three level-3 tasks that were listed without one, and adds them to `workloads.json.xz`.

python3 bench/kernelbench/absent.py

Needs torch. Sizes are the published ones; bytes and operations of each task must come out as `baseline_h200.csv`
says, where they were counted from the tasks themselves. Values are filled as PyTorch draws them (documentation of
`Conv2d`, `ConvTranspose2d`, `GRU`: uniform within one over the root of the fan-in, or of the hidden size).
"""

import csv
import json
import lzma
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

FOLDER = Path(__file__).parent


class Gru(nn.Module):
    """Six layers; `result` 0 is the output of all steps, 1 the last hidden states."""

    def __init__(self, result: int):
        super().__init__()
        self.result = result
        self.gru = nn.GRU(128, 256, 6)

    def forward(self, x: torch.Tensor, h0: torch.Tensor) -> torch.Tensor:
        return self.gru(x, h0)[self.result]


def double_conv(channels: int, features: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in (channels, features):
        layers += [nn.Conv2d(width, features, 3, padding=1), nn.BatchNorm2d(features)]
        layers.append(nn.Softmax(dim=-1))
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Four levels of two convolutions with a softmax along the rows as activation."""

    def __init__(self, channels: int = 8, classes: int = 4, features: int = 64):
        super().__init__()
        widths = [features << level for level in range(5)]
        self.down = nn.ModuleList(
            double_conv(*pair) for pair in zip([channels, *widths[:3]], widths[:4], strict=True)
        )
        self.bottom = double_conv(widths[3], widths[4])
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[:4])
        self.join = nn.ModuleList(double_conv(2 * w, w) for w in widths[:4])
        self.last = nn.Conv2d(features, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for level in self.down:
            kept.append(level(x))
            x = nn.functional.max_pool2d(kept[-1], 2, 2)
        x = self.bottom(x)
        for up, join, skipped in reversed(list(zip(self.up, self.join, kept, strict=True))):
            x = join(torch.cat((up(x), skipped), 1))
        return self.last(x)


def tasks() -> dict[str, tuple[nn.Module, dict[str, tuple[int, ...]]]]:
    gru = {"x": (512, 10, 128), "h0": (6, 10, 256)}
    return {
        "L3/39_GRU": (Gru(0), gru),
        "L3/40_GRUHidden": (Gru(1), gru),
        "L3/45_UNetSoftmax": (UNet(), {"x": (8, 8, 64, 512)}),
    }


def fill(module: nn.Module, name: str, value: torch.Tensor) -> list[Any]:
    """How a tensor of a module's state is drawn."""
    owner = module.get_submodule(name.rpartition(".")[0])
    match owner:
        case nn.GRU():
            bound = owner.hidden_size**-0.5
        case nn.Conv2d() | nn.ConvTranspose2d():
            weight = owner.weight
            bound = (weight.shape[1] * weight[0, 0].numel()) ** -0.5
        case _:
            return ["constant", float(value.flatten()[0])]
    return ["uniform", -bound, bound]


def argument(value: Any) -> Any:
    match value:
        case torch.fx.Node():
            return {"ref": value.name}
        case list() | tuple():
            return [argument(item) for item in value]
        case _:
            return value


def out(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
    return [out(item) for item in value]


def table(task: str, module: nn.Module, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    inputs = tuple(torch.empty(shape) for shape in shapes.values())
    exported = torch.export.export(module.eval(), inputs)
    state = dict(module.state_dict())
    targets = exported.graph_signature.inputs_to_parameters
    kinds = dict.fromkeys(targets, "parameter")
    buffers = exported.graph_signature.inputs_to_buffers
    targets, kinds = targets | buffers, kinds | dict.fromkeys(buffers, "buffer")
    params = [
        {"name": name, "kind": kinds[name], "target": target, **out(state[target])}
        | {"fill": fill(module, target, state[target])}
        for name, target in targets.items()
        if not target.endswith("num_batches_tracked")
    ]
    nodes = [
        {"name": node.name, "op": str(node.target), "args": argument(node.args)}
        | {"out": out(node.meta["val"])}
        for node in exported.graph.nodes
        if node.op == "call_function"
    ]
    (last,) = exported.graph.output_node().args[0]
    return {
        "task": task,
        "inputs": [
            {"name": name, **out(x), "fill": ["uniform", 0.0, 1.0]}
            for name, x in zip(shapes, inputs, strict=True)
        ],
        "params": params,
        "nodes": nodes,
        "outputs": [{"ref": last.name}],
    }


def check(table: dict[str, Any], module: nn.Module) -> None:
    """Bytes and operations against those counted from the task itself."""
    with open(FOLDER / "baseline_h200.csv", newline="", encoding="utf-8") as file:
        row = next(row for row in csv.DictReader(file) if row["task"] == table["task"])
    results = {node["name"]: node["out"] for node in table["nodes"]}
    tensors = [*table["inputs"], results[table["outputs"][0]["ref"]]]
    n_bytes = sum(4 * torch.Size(tensor["shape"]).numel() for tensor in tensors)
    n_bytes += sum(value.nbytes for value in module.state_dict().values())
    inputs = [torch.empty(x["shape"], device="meta") for x in table["inputs"]]
    with FlopCounterMode(display=False) as counter:
        module.to("meta")(*inputs)
    found = {"bytes": n_bytes, "flops": counter.get_total_flops()}
    for what, value in found.items():
        # Operations of recurrent layers were not counted.
        if int(row[what]) and value != int(row[what]):
            raise SystemExit(f"{table['task']}: {value} {what}, not {row[what]}")


def main() -> None:
    packed = FOLDER / "workloads.json.xz"
    tables = {}
    for line in lzma.decompress(packed.read_bytes()).decode().splitlines():
        tables[json.loads(line)["task"]] = line
    for task, (module, shapes) in tasks().items():
        made = table(task, module, shapes)
        check(made, module)
        tables[task] = json.dumps(made, separators=(",", ":"))
    lines = "".join(f"{tables[task]}\n" for task in sorted(tables))
    packed.write_bytes(lzma.compress(lines.encode(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main()
