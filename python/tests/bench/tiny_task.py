"""A workload table small enough for the CPU: `relu(linear(x))`."""

TINY = {
    "task": "L1/0_tiny",
    "inputs": [
        {"name": "x", "shape": [4, 8], "dtype": "float32", "fill": ["uniform", -1.0, 1.0]},
    ],
    "params": [
        {
            "name": "p_weight",
            "kind": "parameter",
            "target": "layer.weight",
            "shape": [6, 8],
            "dtype": "float32",
            "fill": ["uniform", -0.5, 0.5],
        },
        {
            "name": "p_bias",
            "kind": "parameter",
            "target": "layer.bias",
            "shape": [6],
            "dtype": "float32",
            "fill": ["normal", 0.0, 1.0],
        },
    ],
    "nodes": [
        {
            "name": "linear",
            "op": "aten.linear.default",
            "args": [{"ref": "x"}, {"ref": "p_weight"}, {"ref": "p_bias"}],
            "out": {"shape": [4, 6], "dtype": "float32"},
        },
        {
            "name": "relu_",
            "op": "aten.relu_.default",
            "args": [{"ref": "linear"}],
            "out": {"shape": [4, 6], "dtype": "float32"},
        },
    ],
    "outputs": [{"ref": "relu_"}],
}
