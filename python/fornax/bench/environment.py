"""What the records say of the machine and the software."""

from __future__ import annotations

import datetime
import subprocess
import sys


def environment(revision: str) -> dict[str, str]:
    """Device, driver, torch, date, revision and command."""
    import torch

    return {
        "device": _nvidia_smi("name"),
        "driver": _nvidia_smi("driver_version"),
        "torch": f"{torch.__version__} (CUDA {torch.version.cuda})",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "git": revision,
        "command": " ".join(["python3 -m fornax.bench", *sys.argv[1:]]),
    }


def _nvidia_smi(query: str) -> str:
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return "none"
    return done.stdout.strip()
