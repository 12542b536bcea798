"""The client that the documents generate from /openapi.json, by the current openapi-python-client and by one of
the documents' time: five modules, and a typed object from each."""

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

from helpers.guest import ROOT, SLOWER
from helpers.services import Services

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.timeout(600)]
VERSIONS = ["0.29.*", "0.24.*"]

# What a caller of the generated package does, as the documents' manager does it.
CALLS = textwrap.dedent("""
    import sys
    sys.path.insert(0, sys.argv[1])
    from sandbox_rest_server_client import Client, models
    from sandbox_rest_server_client.api.default import (
        get_installed_packages_packages_get as packages, health_check_health_get as health,
        record_record_get as record, run_code_execute_post as execute,
        screenshot_endpoint_screenshot_get as screenshot)

    client = Client(base_url=sys.argv[2])
    said = health.sync_detailed(client=client).parsed
    assert isinstance(said, models.HealthResponse) and said.status in ("ok", "error"), said
    said = execute.sync_detailed(client=client, body=models.CodeRequest(code="print(6 * 7)")).parsed
    assert isinstance(said, models.ExecuteResponse) and said.to_dict() == {"stdout": "42\\n", "stderr": ""}, said
    said = execute.sync_detailed(client=client, body=models.CodeRequest(code="1/0", packages=None)).parsed
    assert said.stderr.endswith("ZeroDivisionError: division by zero\\n"), said
    said = packages.sync_detailed(client=client).parsed
    assert isinstance(said, list) and all(isinstance(one, models.PackageInfo) for one in said), said
    answer = screenshot.sync_detailed(client=client)
    assert answer.status_code == 500 and isinstance(answer.parsed, models.ErrorResponse), answer
    answer = screenshot.sync_detailed(client=client, method=models.ScreenshotEndpointScreenshotGetMethod.PILLOW)
    assert isinstance(answer.parsed, models.ErrorResponse) and answer.parsed.status == "error", answer
    for mode in models.RecordRecordGetMode.START, models.RecordRecordGetMode.STOP:
        answer = record.sync_detailed(client=client, mode=mode)
        assert isinstance(answer.parsed, models.ErrorResponse), answer
    models.ScreenshotResponse, models.RecordResponse, models.HTTPValidationError, models.ValidationError
    print("typed")
""")


@pytest.fixture(scope="module", params=VERSIONS)
def generator(request):
    """A Python with that version of the tool, kept in .cache; made when it is missing."""
    place = ROOT / ".cache" / ("openapi-client-" + request.param.removesuffix(".*"))
    python = place / "bin/python"
    if not (place / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True, capture_output=True)
        done = subprocess.run([python, "-m", "pip", "install", "-q", f"openapi-python-client=={request.param}"],
                              capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"openapi-python-client {request.param} cannot be installed: {done.stderr[-200:]}")
        (place / "complete").touch()
    return python


@pytest.fixture(scope="module")
def services(workspace):
    started = Services(os.path.join(workspace, "client-services"))
    yield started
    started.stop()


def test_the_generated_client_is_typed(generator, services, folder):
    document, out = pathlib.Path(folder, "openapi.json"), pathlib.Path(folder, "sandbox-client")
    document.write_bytes(services.call("GET", "/openapi.json").body)
    made = subprocess.run([generator, "-m", "openapi_python_client", "generate", "--path", document,
                           "--output-path", out, "--overwrite"], capture_output=True, text=True, timeout=120 * SLOWER)
    assert made.returncode == 0, made.stdout + made.stderr
    assert sorted(p.stem for p in (out / "sandbox_rest_server_client/api/default").glob("*.py")) == sorted([
        "__init__", "get_installed_packages_packages_get", "health_check_health_get", "record_record_get",
        "run_code_execute_post", "screenshot_endpoint_screenshot_get"])
    done = subprocess.run([generator, "-c", CALLS, out, f"http://127.0.0.1:{services.port}"],
                          capture_output=True, text=True, timeout=120 * SLOWER)
    assert done.stdout == "typed\n", done.stderr


SERVED = textwrap.dedent("""
    import sys
    sys.path.insert(0, sys.argv[1])
    from sandbox_rest_server_client import AuthenticatedClient, Client, models
    from sandbox_rest_server_client.api.default import run_code_execute_post as execute

    body = models.CodeRequest(code="print(6 * 7)")
    base, token = sys.argv[2:]
    assert execute.sync_detailed(client=Client(base_url=base), body=body).status_code == 403
    for client in AuthenticatedClient(base_url=base, token=token), Client(base_url=base, headers={"X-Access-Token": token}):
        assert execute.sync_detailed(client=client, body=body).parsed.stdout == "42\\n"
    print("known")
""")


def test_the_generated_client_is_let_in_by_the_sandboxs_token(generator, services, server, folder):
    document, out = pathlib.Path(folder, "openapi.json"), pathlib.Path(folder, "sandbox-client")
    document.write_bytes(services.call("GET", "/openapi.json").body)
    subprocess.run([generator, "-m", "openapi_python_client", "generate", "--path", document,
                    "--output-path", out, "--overwrite"], capture_output=True, check=True, timeout=120 * SLOWER)
    box = server.create(timeout=600)
    preview = json.loads((server.data / "server.json").read_text())["preview_url"]
    done = subprocess.run([generator, "-c", SERVED, out, f"{preview}/{box['id']}/8765", box["token"]],
                          capture_output=True, text=True, timeout=120 * SLOWER)
    assert done.stdout == "known\n", done.stderr
