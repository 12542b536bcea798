"""As little of a DNS server as has a wildcard: every name below one domain is one address. For clients
that are told of it by a resolv.conf of their own; a hosts file has no wildcards, and a resolver that is
not the C library's reads it but once."""

import socket
import struct
import threading

A, AAAA, INTERNET = 1, 28, 1
NO_SUCH_NAME = 3


def question(query):
    """The name that is asked for, the type, and the bytes of it that an answer repeats."""
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode("latin-1").lower())
        at += 1 + query[at]
    kind, = struct.unpack_from(">H", query, at + 1)
    return ".".join(labels), kind, query[12:at + 5]


def reply(query, addresses):
    """With these addresses of the type that was asked for; None: there is no such name."""
    number, _, questions = struct.unpack_from(">HHH", query)
    assert questions == 1
    _, kind, asked = question(query)
    known = addresses is not None
    records = b""
    for address in addresses or []:
        family = socket.AF_INET6 if kind == AAAA else socket.AF_INET
        raw = socket.inet_pton(family, address)
        records += struct.pack(">HHHIH", 0xC00C, kind, INTERNET, 0, len(raw)) + raw
    flags = 0x8580 | (0 if known else NO_SUCH_NAME)
    return struct.pack(">HHHHHH", number, flags, 1, len(addresses or []), 0, 0) + asked + records


def answer(query, domain, address):
    """The reply to one query: the address, nothing for another type, or that there is no such name."""
    name, kind, _ = question(query)
    if name != domain and not name.endswith("." + domain):
        return reply(query, None)
    return reply(query, [address] if kind == A else [])


class Dns:
    """Serves from a thread until closed."""

    def __init__(self, domain, address):
        self.domain, self.address = domain, address
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, 53))
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            query, sender = self.socket.recvfrom(4096)
            if not query:
                return
            self.socket.sendto(answer(query, self.domain, self.address), sender)

    def close(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.sendto(b"", (self.address, 53))
        self.thread.join()
        self.socket.close()
