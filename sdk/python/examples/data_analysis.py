"""Data goes in, code that somebody (or something) wrote looks at it inside, numbers and a picture come out.

usage: python data_analysis.py [FOLDER]        (where the picture goes; default: here)
"""

import csv
import io
import json
import random
import sys
from pathlib import Path

from cove import Limits, Sandbox

ANALYSIS = """
import csv, json, statistics

rows = [(int(r["day"]), float(r["sold"])) for r in csv.DictReader(open("sales.csv"))]
sold = [value for _, value in rows]
top, days = max(sold), max(day for day, _ in rows)
points = " ".join(f"{10 + 580 * d / days:.1f},{190 - 170 * v / top:.1f}" for d, v in rows)
with open("sales.svg", "w") as picture:
    picture.write(
        '<svg xmlns="http://www.w3.org/2000/svg" width="600" height="200">'
        f'<polyline fill="none" stroke="teal" points="{points}"/></svg>'
    )
print(json.dumps({"days": len(rows), "mean": round(statistics.mean(sold), 1), "best": top}))
"""


def sales() -> str:
    out, chance = io.StringIO(), random.Random(1)
    writer = csv.writer(out)
    writer.writerow(["day", "sold"])
    for day in range(365):
        writer.writerow([day, round(100 + day / 5 + chance.gauss(0, 15), 1)])
    return out.getvalue()


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    # Nothing leaves this sandbox but what is fetched from it.
    with Sandbox.create(network="none", limits=Limits(memory_bytes=512 << 20)) as sandbox:
        sandbox.files.write("sales.csv", sales())
        sandbox.files.write("analysis.py", ANALYSIS)
        result = sandbox.commands.run("python3 analysis.py", check=True)
        found = json.loads(result.stdout)
        sandbox.files.download("sales.svg", folder / "sales.svg")
    print(
        f"{found['days']} days, {found['mean']} a day, at best {found['best']}: {folder / 'sales.svg'}"
    )


if __name__ == "__main__":
    main()
