"""Makes the small PyTorch models that the importers' tests read.

    python models/tests/data/make.py

needs torch 2.11. For each module: `<name>.pt2`, `<name>.pt` (traced, or scripted where the module has control flow) and
`<name>.npz` with inputs and what torch gives in double precision. `old_layout.pt2` is laid out as PyTorch 2.4 to 2.7 did.
"""

import sys
import warnings
import zipfile
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "zoo"))
from make import record, slim  # noqa: E402


class Attention(nn.Module):
    """A transformer encoder layer by parts, with fused attention."""

    def __init__(self, width=8, heads=2):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        q, k, v = (t.reshape(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Changes(nn.Module):
    """Changes in place, through views and without."""

    def forward(self, x):
        y = x * 2
        y[:, 1:3] += 1
        y.select(1, 0).relu_()
        z = y.view(-1, 2, 4).transpose(1, 2)
        z.mul_(0.5)
        w = torch.zeros_like(y)
        w.copy_(y).add_(x, alpha=3)
        return y, w.clamp_(min=-1), torch.where(x > 0, y, -x)


class Recurrent(nn.Module):
    """An LSTM of two layers and directions, and a GRU."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(8, 3)

    def forward(self, x):
        y, (hidden, cell) = self.lstm(x)
        z, last = self.gru(y)
        return z, hidden + cell, last


class Branches(nn.Module):
    """Control flow that shapes and attributes decide."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.norm = nn.BatchNorm1d(4)
        self.scale: float = 0.5

    def forward(self, x, skip: bool = True):
        parts: list[torch.Tensor] = []
        for layer in self.layers:
            if x.dim() == 2 and skip:
                x = torch.relu(layer(x)) + x
            else:
                x = layer(x)
            parts.append(x * self.scale)
        if x.size(1) > 100:
            raise ValueError("too wide")
        total = parts[0]
        for i in range(1, len(parts)):
            total = total + parts[i]
        return {"total": self.norm(total), "last": parts[-1]}


MODULES = {
    "attention": (Attention, (torch.Size([2, 5, 8]),)),
    "branches": (Branches, (torch.Size([3, 4]),)),
    "changes": (Changes, (torch.Size([3, 8]),)),
    "recurrent": (Recurrent, (torch.Size([2, 5, 3]),)),
}


class Outputs(nn.Module):
    """A module's tensors as a tuple."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        result = self.module(*inputs)
        return tuple(result.values()) if isinstance(result, dict) else result


def old_layout(program, path):
    from torch._export.serde.serialize import SCHEMA_VERSION, serialize

    artifact = serialize(program)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo("version"), ".".join(map(str, SCHEMA_VERSION)))
        archive.writestr(zipfile.ZipInfo("serialized_exported_program.json"), artifact.exported_program)
        archive.writestr(zipfile.ZipInfo("serialized_state_dict.pt"), artifact.state_dict)
        archive.writestr(zipfile.ZipInfo("serialized_constants.pt"), artifact.constants)


def main(folder):
    torch.set_num_threads(1)
    for name, (make, shapes) in MODULES.items():
        torch.manual_seed(0)
        module = make().eval()
        example = tuple(torch.randn(shape) for shape in shapes)
        program = torch.export.export(module, example)
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)
        path = folder / f"{name}.pt2"
        torch.export.save(program, path)
        slim(path)
        if name == "attention":
            old_layout(program, folder / "old_layout.pt2")
        script = torch.jit.script(module) if name == "branches" else torch.jit.trace(module, example)
        script.save(path.with_suffix(".pt"))
        slim(path.with_suffix(".pt"))
        record(Outputs(module), example, path.with_suffix(".npz"))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(__file__).resolve().parent)
