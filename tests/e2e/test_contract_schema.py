"""Requests made by schemathesis from the two OpenAPI documents of the server: whatever is sent, no answer is
the server's own failure, and each fits the schema that the document has for it.

Calls that change who may come in are left to a user of no rights; those that end what others use, or only
ever refuse, are not called."""

import os
import pathlib

import hypothesis
import pytest
import schemathesis
from schemathesis.specs.openapi.checks import (content_type_conformance, response_schema_conformance,
                                               status_code_conformance)

from helpers.contract import Contract, add_user
from helpers.guest import SLOWER
from helpers.serve import Serve

EXAMPLES = int(os.environ.get("COVE_SCHEMA_EXAMPLES", 40))
def no_failure(ctx, response, case):
    """501 is a refusal that says what is not supported; any other of its kind is a failure of ours."""
    assert response.status_code < 500 or response.status_code == 501, response.text


CHECKS = (no_failure, content_type_conformance, response_schema_conformance,
          status_code_conformance)
LEFT_OUT = {
    "logout", "refresh_token",          # would end the login that all others use
    "openTunnel",                       # answers by becoming something else
    "getDocs", "getServerMetrics",      # are no JSON
    "endSandboxes",                     # would end the sandbox that all others use
}


@pytest.fixture(scope="module")
def play(workspace):
    """A server that nobody else uses, and a user of it with a sandbox."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to limit, map and mount")
    started = Serve(pathlib.Path(workspace) / "contract-schema", "--ephemeral",
                    "--set", "auth.swagger-rate=0", "--set", "auth.login-rate=0",
                    "--set", "auth.lockout-failures=0", "--set", "contract.command-s=5",
                    "--set", "control.user-sandboxes-max=60")
    yield Contract(started, add_user(started, "schema", multi_login=True))
    started.close()


def operations(document):
    """Those that have an answer of success to compare with."""
    return [row["operationId"] for item in document["paths"].values() for row in item.values()
            if row["operationId"] not in LEFT_OUT and set(row["responses"]) != {"default"}]


def without_credentials(document):
    """Ours are sent with every request: made-up ones would be 401, which other tests look at."""
    del document["security"], document["components"]["securitySchemes"]
    for item in document["paths"].values():
        for row in item.values():
            row.pop("security", None)
    return document


def play_with(user, path):
    document = without_credentials(user.server.ok("GET", path, key=None))
    wanted = set(operations(document))
    box = user.create()
    names = {"id": box["provider_sandbox_id"], "sandbox_id": box["sandbox_id"],
             "sandboxID": box["provider_sandbox_id"]}
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=user.server.url)
    called = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.definition.raw["operationId"] in wanted:
            one_operation(user, operation, names)
            called += 1
    assert called == len(wanted) > 10
    assert user.server.running() and user.server.ok("GET", "/health", key=None)
    ended = user.server.call("DELETE", "/v1/sandboxes", key=None, headers=user.headers())
    assert ended.status == 200 and ended.json["ended"] > 1


def one_operation(user, operation, names):
    """Half of the requests name a sandbox that is there, or they would all be 404."""
    name, answers = operation.definition.raw["operationId"], set()

    @hypothesis.settings(max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
                         suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(case=operation.as_strategy(), real=hypothesis.strategies.booleans())
    def ask(case, real):
        if real and operation.method.upper() != "DELETE":
            for part in (case.path_parameters, case.query, case.body):
                if isinstance(part, dict):
                    part.update({key: value for key, value in names.items() if key in part})
        if isinstance(case.body, dict) and "command" in case.body:
            case.body["background"] = False
        if name == "getEvents" and case.query:
            case.query.pop("wait", None)        # up to a minute each
        reply = case.call_and_validate(headers=user.headers(), checks=CHECKS, timeout=60 * SLOWER)
        answers.add(reply.status_code)

    ask()
    assert 401 not in answers, name


@pytest.mark.slow
@pytest.mark.timeout(300 * SLOWER)
def test_the_contract_keeps_its_document(play):
    play_with(play, "/openapi.json")


@pytest.mark.slow
@pytest.mark.timeout(300 * SLOWER)
def test_the_native_api_keeps_its_document(play):
    play_with(play, "/v1/openapi.json")
