"""Benchmarking Fornax against `torch.compile`, honestly. `python -m fornax.bench --help` says how."""
