"""A shell on a terminal inside, by the guest's protocol."""

import base64


def open_terminal(box):
    return box.wire(20).start("/bin/bash", "--norc", "-i", pty={"size": {"cols": 80, "rows": 24}},
                              envs={"PS1": "", "TERM": "dumb"})


def typed(box, stream, *lines):
    """What the last line that was typed, an echo, makes the terminal say."""
    for line in lines:
        reply = box.wire(20).process("SendInput", {"process": {"pid": stream.pid}, "input": {
            "pty": base64.b64encode(line.encode() + b"\n").decode()}})
        assert reply.status == 200, reply
    text = b""
    for kind, value in stream.events():
        if kind == "pty":
            text += value
        words = [line.strip().decode() for line in text.splitlines() if line.strip()]
        if words and text.endswith(b"\n") and words[-1] in ("begun", "kept 42"):
            return words[-1]
    raise AssertionError(text)
