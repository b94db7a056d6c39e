"""Packs a folder of workload tables into `workloads.json.xz`: a table a line, in order, always the same bytes.

python3 bench/kernelbench/pack.py FOLDER
"""

import json
import lzma
import sys
from pathlib import Path


def main() -> None:
    tables = [json.loads(path.read_text()) for path in sorted(Path(sys.argv[1]).glob("*.json"))]
    lines = "".join(json.dumps(table, separators=(",", ":")) + "\n" for table in tables)
    out = Path(__file__).parent / "workloads.json.xz"
    out.write_bytes(lzma.compress(lines.encode(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main()
