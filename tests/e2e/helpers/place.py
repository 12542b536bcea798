"""Where a data directory's keeper has its own in a run directory."""

import pathlib


def identity(data):
    return pathlib.Path(data, "id").read_text().strip()


def place(run_dir, data):
    """Of a keeper that knows no places, or before one was started: the run directory itself."""
    try:
        own = pathlib.Path(run_dir, identity(data))
    except FileNotFoundError:
        return pathlib.Path(run_dir)
    return own if (own / "boxes").exists() else pathlib.Path(run_dir)
