"""Where programs that tests start find what the tests found."""

from __future__ import annotations

import os
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"


def python_path(packages: Path = SOURCE) -> str:
    """Ours from there, and everything else from where this process has it, be it by PYTHONPATH alone."""
    others = [path for path in sys.path if path and Path(path).resolve() != SOURCE]
    return os.pathsep.join([str(packages), *others])
