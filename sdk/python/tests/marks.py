"""Why a test is not run."""

import os

import pytest

needs_root = pytest.mark.skipif(
    os.geteuid() != 0,
    reason="limits, layers and mounts of sandboxes need a server that root started",
)
