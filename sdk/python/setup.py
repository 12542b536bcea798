"""A wheel with the server in it, when COVE_WHEEL_BINARY names the program; else one for every machine.

COVE_WHEEL_BINARY=../../build/cove python -m build --wheel
"""

import os
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

BINARY = os.environ.get("COVE_WHEEL_BINARY")


class WithBinary(build_py):
    def run(self):
        super().run()
        target = Path(self.build_lib) / "cove" / "_bin" / "cove"
        if BINARY:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(BINARY, target)
            target.chmod(0o755)
        elif target.exists():  # of an earlier build in the same directory
            target.unlink()


class ForThisMachine(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = not BINARY

    def get_tag(self):
        # Nothing in it depends on the interpreter, only on the machine.
        return ("py3", "none", super().get_tag()[2])


setup(cmdclass={"build_py": WithBinary, "bdist_wheel": ForThisMachine})
