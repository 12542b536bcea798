"""Fixtures of the kernels' tests: one service for the session, special ones on demand."""
import os
import pathlib
import shutil
import tempfile

import pytest

from service import Kernel, Service


@pytest.fixture(scope="session")
def session_dir():
    path = tempfile.mkdtemp(prefix="cove-k-")
    yield pathlib.Path(path)
    shutil.rmtree(path, ignore_errors=True)


def leftovers(service):
    return [p.name for p in (service.dir / "run").iterdir()]


@pytest.fixture(scope="session")
def service(session_dir):
    one = Service(session_dir)
    yield one
    one.stop()
    assert "Sanitizer" not in one.log() + (one.dir / "stderr").read_text()
    assert one.log().count("msg=serving") == 1, "it has never been started again:\n" + one.log()[-5000:]
    assert leftovers(one) == [], "the service leaves nothing behind"


@pytest.fixture
def start_service():
    """Services with options of the test's own, stopped at its end."""
    started = []

    def start(*options, **variables):
        one = Service(tempfile.mkdtemp(prefix="cove-k-"), *options, **variables)
        started.append(one)
        return one

    yield start
    for one in started:
        one.stop()
        shutil.rmtree(one.dir, ignore_errors=True)


@pytest.fixture(params=["default", "v1"])
def kernel(service, request):
    """A connection to a new kernel, in each dialect."""
    with Kernel(service, request.param == "v1") as channels:
        yield channels


@pytest.fixture
def quick(service):
    """A connection to a new kernel, where the dialect does not matter."""
    with Kernel(service) as channels:
        yield channels


@pytest.fixture(scope="session")
def node():
    return os.environ["COVE_NODE"]
