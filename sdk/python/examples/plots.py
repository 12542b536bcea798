"""Code in a kernel that keeps its variables: a model's first cell loads, its second plots; the picture comes
back, and what is in it as numbers.

usage: python plots.py [FOLDER]        (where the picture goes; default: here)

Needs matplotlib inside: `cove layer add python --with matplotlib`, once.
"""

import base64
import sys
from pathlib import Path

from cove import Sandbox

CELLS = [
    "import numpy as np\nyears = np.arange(2000, 2025)\nsize = 10 * 1.07 ** (years - 2000)",
    """
import matplotlib.pyplot as plt
plt.plot(years, size, label="seven percent a year")
plt.title("Growth")
plt.xlabel("year")
plt.show()
""",
]


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    with Sandbox.create(network="none") as sandbox:
        for cell in CELLS:
            execution = sandbox.code.run(cell)
            if execution.error:
                sys.exit(execution.error.traceback)
        figure = execution.results[0]
        (folder / "growth.png").write_bytes(base64.b64decode(figure.png or ""))
        chart = figure.chart or {}
        points = chart["elements"][0]["points"]
        print(
            f"{chart['type']} chart '{chart['title']}' of {len(points)} points: {folder / 'growth.png'}"
        )


if __name__ == "__main__":
    main()
