"""A local port that leads to one inside a sandbox: each connection is one request to the server that is
upgraded to plain bytes. Threads, since bytes of two sockets are copied the same for both clients."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from typing import List, Set
from urllib.parse import urlsplit

from ._config import Connection
from .errors import from_reply

_HEAD_MAX = 16 * 1024


class Tunnel:
    """Listening when made."""

    def __init__(
        self, connection: Connection, sandbox: str, port: int, host: str, local_port: int
    ) -> None:
        self._connection = connection
        self._target = f"/v1/sandboxes/{sandbox}/tunnel?port={port}"
        self._listener = socket.create_server((host, local_port))
        self._lock = threading.Lock()
        self._open: Set[socket.socket] = set()
        self._threads: List[threading.Thread] = []
        self._closed = False
        self._spawn(self._accept)

    @property
    def host(self) -> str:
        return str(self._listener.getsockname()[0])

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Tunnel:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening and end its connections. Twice is once."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for one in [self._listener, *self._open]:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits on it
        for thread in self._threads:
            thread.join(5)
        self._listener.close()

    # --- threads -----------------------------------------------------------------------------

    def _spawn(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads = [t for t in self._threads if t.is_alive()] + [thread]
        thread.start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                outer, _ = self._listener.accept()
            except OSError:
                return
            self._spawn(self._serve, outer)

    def _serve(self, outer: socket.socket) -> None:
        with outer, contextlib.suppress(Exception), self._dial() as inner:
            with self._lock:
                if self._closed:
                    return
                self._open |= {outer, inner}
            back = threading.Thread(target=_copy, args=(inner, outer), daemon=True)
            back.start()
            _copy(outer, inner)
            back.join()
            with self._lock:
                self._open -= {outer, inner}

    def _dial(self) -> socket.socket:
        url = urlsplit(self._connection.url)
        secure = url.scheme == "https"
        where = (url.hostname or "127.0.0.1", url.port or (443 if secure else 80))
        inner = socket.create_connection(where, self._connection.timeout)
        try:
            if secure:
                context = ssl.create_default_context(cafile=self._connection.ca_file)
                inner = context.wrap_socket(inner, server_hostname=where[0])
            self._upgrade(inner, url.netloc)
            inner.settimeout(None)
            return inner
        except BaseException:
            inner.close()
            raise

    def _upgrade(self, inner: socket.socket, host: str) -> None:
        lines = [f"GET {self._target} HTTP/1.1", f"Host: {host}"]
        lines += [f"{name}: {value}" for name, value in self._connection.headers().items()]
        lines += ["Connection: Upgrade", "Upgrade: cove-tunnel", "", ""]
        inner.sendall("\r\n".join(lines).encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):  # byte by byte: what follows is the port's
            piece = inner.recv(1)
            if not piece or len(head) > _HEAD_MAX:
                raise ConnectionError("the server ended the connection")
            head += piece
        status = int(head.split(b" ", 2)[1])
        if status != 101:
            raise from_reply(status, inner.recv(4096))


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            data = source.recv(65536)
            if not data:
                break
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)  # the other direction ends by itself
