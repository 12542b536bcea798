"""`sandbox.code`: what it makes of every kind of answer, from a service that gives them all.
The guest's own is in test_services.py."""

from __future__ import annotations

import json

import pytest
from marks import needs_root

import cove

pytestmark = needs_root

SERVICE = """
import http.server, json
LINES = %s
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, status, body):
        self.send_response(status); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.answer(200, json.dumps([{"id": "c1", "language": "python", "cwd": "/home/user"}]).encode())
    def do_DELETE(self):
        self.answer(200, b"null")
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}")
        if self.path == "/contexts":
            return self.answer(200, json.dumps({"id": "c2", **asked}).encode())
        if self.path != "/execute":
            return self.answer(200, b"null")
        if asked["context_id"] == "gone":
            return self.answer(404, b"Context gone not found")
        lines = LINES + [{"type": "stdout", "text": asked["code"], "timestamp": "t"}]
        self.answer(200, "".join(json.dumps(x) + chr(10) for x in lines).encode())
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 49999), H).serve_forever()
"""
LINES = [
    {"type": "number_of_executions", "execution_count": 3},
    {"type": "stdout", "text": "ä", "timestamp": "t"},
    {"type": "stderr", "text": "warn", "timestamp": "t"},
    {"type": "keepalive"},
    {"type": "result", "text": "4", "is_main_result": True},
    {
        "type": "result",
        "png": "aGk=",
        "html": "<b>x</b>",
        "chart": {"type": "line"},
        "extra": {"a/b": 1},
    },
    {"type": "error", "name": "E", "value": "v", "traceback": "Trace"},
    {"type": "something new"},
    {"type": "end_of_execution"},
]


@pytest.fixture
def box(client):
    with cove.Sandbox.create(client=client, env={"COVE_SERVICES": "none"}) as made:
        made.files.write("service.py", SERVICE % json.dumps(LINES).replace("true", "True"))
        service = made.commands.start("python3 service.py")
        made.ports.wait(49999)
        yield made
        service.kill()
        service.close()


def test_everything_that_code_can_show(box):
    heard = []
    execution = box.code.run(
        "code",
        on_stdout=heard.append,
        on_result=lambda r: heard.append(r.text),
        on_error=heard.append,
    )
    assert (execution.stdout, execution.stderr, execution.count) == ("äcode", "warn", 3)
    assert execution.text == "4"
    chart = execution.results[1]
    assert (chart.png, chart.html, chart.chart, chart.formats["a/b"]) == (
        "aGk=",
        "<b>x</b>",
        {"type": "line"},
        1,
    )
    bundle = chart._repr_mimebundle_()
    assert bundle["image/png"] == "aGk=" and "<iframe sandbox " in bundle["text/html"]
    assert execution.error.traceback == "Trace"
    assert heard[0] == "ä" and heard[1] == "4" and len(heard) == 5
    shown = execution._repr_html_()
    assert "&lt;b&gt;x&lt;/b&gt;" in shown and "Trace" in shown


@pytest.mark.parametrize("form", ["html", "svg", "markdown", "javascript"])
def test_a_page_runs_nothing_of_what_code_inside_shows(form):
    execution, script = cove.Execution(), "<svg><script>alert(1)</script></svg>"
    execution.take(json.dumps({"type": "result", "text": "t", form: script}).encode())
    assert "<script" not in execution._repr_html_()
    assert "<script" not in json.dumps(execution.results[0]._repr_mimebundle_())


def test_lines_of_any_kind_are_no_exception():
    execution = cove.Execution()
    for line in (b"", b"[]", b"3", b"{", b'{"type":"result","extra":[1]}', b'{"type":"error"}'):
        execution.take(line)
    assert len(execution.results) == 1


def test_contexts(box):
    made = box.code.create_context("python", cwd="/tmp")
    assert (made.id, made.language, made.cwd) == ("c2", "python", "/tmp")
    assert [c.id for c in box.code.contexts()] == ["c1"]
    box.code.restart_context(made)
    box.code.remove_context("c2")
    with pytest.raises(cove.NotFoundError, match="Context gone"):
        box.code.run("1", context="gone")


def test_without_the_service_it_is_said(client):
    with cove.Sandbox.create(client=client, env={"COVE_SERVICES": "none"}) as made:
        with pytest.raises(cove.PortClosedError, match="port is not open"):
            made.code.run("1")
