"""A local port that leads to one inside a sandbox: each connection is one request to the server that is
upgraded to plain bytes. Threads, since bytes of two sockets are copied the same for both clients."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import struct
import threading
from typing import List, Optional, Set, Union
from urllib.parse import urlsplit

from ._config import Connection
from .errors import from_reply

_HEAD_MAX = 16 * 1024
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close that says that something went wrong
_log = logging.getLogger("cove")


class _Secure:
    """TLS on a socket, for two threads: one reads, one writes. ssl's own socket is not made for that, and the
    end of its one direction takes the encryption off the other."""

    def __init__(self, inner: socket.socket, host: str, ca_file: Optional[str]) -> None:
        self.inner = inner
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=ca_file)
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=host)
        self._state = threading.Lock()  # of the three above
        self._order = threading.Lock()  # of what is sent; taken first
        self._plain = bytearray()
        self._ended = False
        self._problem: Optional[ssl.SSLError] = None
        while not self._shaken():
            data = self.inner.recv(65536)
            if not data:
                raise ConnectionError("the server ended the connection")
            self._in.write(data)
        self._decrypt()  # what came with the end of the handshake

    def _shaken(self) -> bool:
        try:
            self._tls.do_handshake()
            return True
        except ssl.SSLWantReadError:
            return False
        finally:
            self._flush()

    def _flush(self) -> None:
        with self._order:
            with self._state:
                data = self._out.read()
            if data:
                self.inner.sendall(data)

    def _fill(self) -> None:
        data = self.inner.recv(65536)
        with self._state:  # to the end: an end of ours in between would find what is not decrypted
            if data:
                self._in.write(data)
            else:
                self._in.write_eof()
            self._decrypt()

    def _decrypt(self) -> None:
        """All there is: what is left in there would be in the way of our end."""
        try:
            while not self._ended:
                data = self._tls.read(65536)
                self._plain += data
                self._ended = not data
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._ended = True
        except ssl.SSLError as problem:  # after what came before it
            self._ended, self._problem = True, problem

    def recv(self, size: int) -> bytes:
        while not self._plain and not self._ended:
            self._fill()
            self._flush()  # an answer to a change of keys
        if not self._plain and self._problem:
            raise self._problem
        data = bytes(self._plain[:size])
        del self._plain[:size]
        return data

    def sendall(self, data: bytes) -> None:
        with self._order:
            with self._state:
                self._tls.write(data)
                sealed = self._out.read()
            self.inner.sendall(sealed)

    def shutdown(self, how: int) -> None:
        if how == socket.SHUT_WR:
            with (
                self._state,
                contextlib.suppress(ssl.SSLError),
            ):  # which is: the other's has not come
                self._tls.unwrap()
            self._flush()
        else:
            self.inner.shutdown(how)

    def settimeout(self, seconds: Optional[float]) -> None:
        self.inner.settimeout(seconds)

    def close(self) -> None:
        self.inner.close()

    def __enter__(self) -> _Secure:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


_Stream = Union[socket.socket, _Secure]


class Tunnel:
    """Listening when made. `problem` is why the last connection did not come about, if so; the logger `cove`
    hears it too."""

    problem: Optional[Exception] = None

    def __init__(
        self, connection: Connection, sandbox: str, port: int, host: str, local_port: int
    ) -> None:
        self._connection = connection
        self._target = f"/v1/sandboxes/{sandbox}/tunnel?port={port}"
        self._listener = socket.create_server((host, local_port))
        self._lock = threading.Lock()
        self._open: Set[_Stream] = set()
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
        with outer:
            try:
                inner = self._dial()
            except Exception as problem:  # of any kind: nobody waits for this thread
                if not self._closed:
                    self.problem = problem
                    _log.warning("%s: no connection: %s", self._target, problem)
                _reset_at_close(outer)
                return
            with inner:
                self._join(outer, inner)

    def _join(self, outer: socket.socket, inner: _Stream) -> None:
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

    def _dial(self) -> _Stream:
        url = urlsplit(self._connection.url)
        secure = url.scheme == "https"
        where = (url.hostname or "127.0.0.1", url.port or (443 if secure else 80))
        raw = socket.create_connection(where, self._connection.timeout)
        try:
            inner = _Secure(raw, where[0], self._connection.ca_file) if secure else raw
            self._upgrade(inner, url.netloc)
            inner.settimeout(None)
            return inner
        except BaseException:
            raw.close()
            raise

    def _upgrade(self, inner: _Stream, host: str) -> None:
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


def _reset_at_close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


def _copy(source: _Stream, target: _Stream) -> None:
    while True:
        try:
            data = source.recv(65536)
        except OSError:  # it broke: the other end must not take what came for all of it
            _fail(target.inner if isinstance(target, _Secure) else target)
            return
        if not data:
            break
        try:
            target.sendall(data)
        except OSError:
            break
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)  # the other direction ends by itself


def _fail(one: socket.socket) -> None:
    """It is reset when it is closed, which whoever reads it does now."""
    _reset_at_close(one)
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RD)
