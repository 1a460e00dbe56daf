"""A process that holds one model and says what memory it has: `python -m … MODEL SMALL_MODEL`.

It obeys lines of its standard input (`load`, `run`, `unload`, `measure`) and answers each with one of JSON.
"""

import gc
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from mcp2026.runtime.model.freed_memory import give_back_freed_memory
from mcp2026.runtime.model.probe import run, samples
from mcp2026.runtime.model.sessions import OpenModel, open_model
from mcp2026.runtime.model.signature import spec_of


def memory() -> dict[str, int]:
    """Return the kernel's account of this process in bytes: `Rss`, `Pss`, `Pss_File`, …."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    parts = (line.split() for line in lines)
    return {name.rstrip(":"): int(size) * 1024 for name, size, *_ in parts}


def infer(model: OpenModel) -> Any:
    """Run the model on the same two rows as every other process."""
    inputs, outputs = (
        tuple(spec_of(argument) for argument in arguments)
        for arguments in (model.session.get_inputs(), model.session.get_outputs())
    )
    return run(model.session, inputs, outputs, samples(inputs, 2, np.random.default_rng(1)))


def main(path: str, small: str) -> None:
    """Obey until the input ends."""
    infer(open_model(small, None, 1, "cpu"))  # libraries and thread pools are no model's memory
    model: OpenModel | None = None
    for line in sys.stdin:
        command = line.strip()
        answer: Any = None
        if command == "load":
            model = open_model(path, None, 1, "cpu")
        elif command == "unload":
            model = None
            give_back_freed_memory()
        elif command == "run":
            assert model is not None
            answer = float(infer(model)[0].sum())
        elif command == "collect":
            answer = gc.collect()
        elif command == "measure":
            answer = memory()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
