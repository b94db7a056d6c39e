"""Makes the zoo: small exported models with random weights, for README, tests and examples.

    python models/zoo/make.py [FOLDER]

needs torch 2.11, onnx 1.23 and onnxscript 0.7 (the versions the committed files were made with). Every
model has a symbolic batch size (TorchScript has no sizes but those of the trace). Seeds are fixed, so that a new run gives the same files.
"""

import copy
import sys
import zipfile
from pathlib import Path

import numpy
import onnx
import torch
from torch import nn


class Mlp(nn.Module):
    """Three layers with GELU and a softmax."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 96), nn.ReLU(), nn.Linear(96, 10)
        )

    def forward(self, x):
        return torch.softmax(self.layers(x), dim=-1)


class ResNetBlock(nn.Module):
    """A stem and two residual blocks, the second with stride and projection, then a classifier."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.first = self.body(16, 16, 1)
        self.second = self.body(16, 32, 2)
        self.project = nn.Sequential(nn.Conv2d(16, 32, 1, 2, bias=False), nn.BatchNorm2d(32))
        self.head = nn.Linear(32, 10)

    @staticmethod
    def body(n_in, n_out, stride):
        return nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(n_out),
            nn.ReLU(),
            nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(n_out),
        )

    def forward(self, x):
        x = self.stem(x)
        x = torch.relu(self.first(x) + x)
        x = torch.relu(self.second(x) + self.project(x))
        return self.head(x.mean(dim=(2, 3)))


class TransformerBlock(nn.Module):
    """Pre-norm attention with a causal mask and a GELU feed-forward layer, written out."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        scores = scores.masked_fill(~mask, float("-inf"))
        mixed = torch.softmax(scores, dim=-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class DepthwiseCnn(nn.Module):
    """Depthwise-separable blocks with hard-swish and squeeze-and-excitation."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish()
        )
        self.expand = nn.Sequential(nn.Conv2d(16, 48, 1, bias=False), nn.BatchNorm2d(48), nn.Hardswish())
        self.depthwise = nn.Sequential(
            nn.Conv2d(48, 48, 5, 1, 2, groups=48, bias=False), nn.BatchNorm2d(48), nn.Hardswish()
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(48, 12, 1), nn.ReLU(), nn.Conv2d(12, 48, 1), nn.Hardsigmoid()
        )
        self.project = nn.Sequential(nn.Conv2d(48, 16, 1, bias=False), nn.BatchNorm2d(16))
        self.head = nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16 * 4 * 4, 10))

    def forward(self, x):
        x = self.stem(x)
        y = self.depthwise(self.expand(x))
        return self.head(x + self.project(y * self.squeeze(y)))


class Recommender(nn.Module):
    """Embedding tables with pooled lookups, pairwise dot products and two MLPs."""

    def __init__(self, tables=4, rows=200, width=16, dense=13):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(dense, 32), nn.ReLU(), nn.Linear(32, width), nn.ReLU())
        count = tables + 1
        self.top = nn.Sequential(
            nn.Linear(width + count * (count - 1) // 2, 32), nn.ReLU(), nn.Linear(32, 1)
        )
        rows_, columns = torch.tril_indices(count, count, offset=-1)
        self.register_buffer("pairs", rows_ * count + columns)

    def forward(self, dense, indices):
        bottom = self.bottom(dense)
        pooled = [table(indices[:, i]).sum(dim=1) for i, table in enumerate(self.tables)]
        features = torch.stack([bottom, *pooled], dim=1)
        products = features @ features.transpose(1, 2)
        products = products.flatten(1).index_select(1, self.pairs)
        return torch.sigmoid(self.top(torch.cat([bottom, products], dim=1)))


#: Models that are exported in the formats of PyTorch too.
TORCH_TOO = ("depthwise_cnn", "recommender")


def warm_up(module, example):
    """Gives batch norms statistics that are not their defaults."""
    module.train()
    with torch.no_grad():
        for _ in range(3):
            module(*example)
    return module.eval()


def export(module, example, path):
    batch = torch.export.Dim("batch", min=1, max=64)
    shapes = tuple({0: batch} for _ in example)
    program = torch.onnx.export(
        module, example, dynamo=True, optimize=True, opset_version=20, dynamic_shapes=shapes,
        input_names=[f"x{i}" for i in range(len(example))] if len(example) > 1 else ["x"],
        output_names=["y"], verbose=False,
    )
    model = program.model_proto
    strip(model)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString(deterministic=True))
    print(f"{path}: {path.stat().st_size} bytes")


def export_torch(module, example, path):
    """The same module as `.pt2` and as TorchScript, and what it gives in double precision (`.npz`)."""
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(module, example, dynamic_shapes=tuple({0: batch} for _ in example))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    torch.export.save(program, path.with_suffix(".pt2"))
    torch.jit.trace(module, example).save(path.with_suffix(".pt"))
    slim(path.with_suffix(".pt2"))
    slim(path.with_suffix(".pt"))
    record(module, example, path.with_suffix(".npz"))


def record(module, example, path):
    exact = copy.deepcopy(module).double()
    inputs = [tensor.double() if tensor.is_floating_point() else tensor for tensor in example]
    with torch.no_grad():
        outputs = exact(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    arrays = {f"in_{at}": tensor.numpy() for at, tensor in enumerate(example)}
    arrays |= {f"out_{at}": tensor.numpy() for at, tensor in enumerate(outputs)}
    numpy.savez(path, **arrays)


def slim(path):
    """Drops what tells of this machine and what no reader needs: where code was, example inputs, an id."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    dropped = (".debug_pkl", "serialization_id", "sample_inputs/model.pt")
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            if not name.endswith(dropped):
                packed = name.endswith((".py", ".json"))
                method = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
                archive.writestr(zipfile.ZipInfo(name), data, compress_type=method)


def strip(model):
    """Drops what tells of this machine: stack traces and paths in metadata and doc strings."""
    model.doc_string = ""
    for holder in [model, model.graph, *model.graph.node, *model.functions]:
        del holder.metadata_props[:]
        holder.doc_string = ""
    for value in [*model.graph.value_info, *model.graph.input, *model.graph.output]:
        del value.metadata_props[:]
    for tensor in model.graph.initializer:
        del tensor.metadata_props[:]


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    indices = torch.randint(0, 200, (2, 4, 5))
    zoo = {
        "mlp": (Mlp, (torch.randn(2, 64),)),
        "resnet_block": (ResNetBlock, (torch.randn(2, 3, 32, 32),)),
        "transformer_block": (TransformerBlock, (torch.randn(2, 24, 64),)),
        "depthwise_cnn": (DepthwiseCnn, (torch.randn(2, 3, 16, 16),)),
        "recommender": (Recommender, (torch.randn(2, 13), indices)),
    }
    for name, (make, example) in zoo.items():
        torch.manual_seed(0)
        module = warm_up(make(), example)
        export(module, example, folder / f"{name}.onnx")
        if name in TORCH_TOO:
            export_torch(module, example, folder / f"{name}.onnx")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
