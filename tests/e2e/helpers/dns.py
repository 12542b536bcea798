"""As little of a DNS server as has a wildcard: every name below one domain is one address. For clients
that are told of it by a resolv.conf of their own; a hosts file has no wildcards, and a resolver that is
not the C library's reads it but once."""

import socket
import struct
import threading

A, INTERNET = 1, 1
NO_SUCH_NAME = 3


def answer(query, domain, address):
    """The reply to one query: the address, nothing for another type, or that there is no such name."""
    number, _, questions = struct.unpack_from(">HHH", query)
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode("latin-1").lower())
        at += 1 + query[at]
    kind, = struct.unpack_from(">H", query, at + 1)
    question = query[12:at + 5]
    assert questions == 1
    name = ".".join(labels)
    known = name == domain or name.endswith("." + domain)
    given = known and kind == A
    head = struct.pack(">HHHHHH", number, 0x8580 | (0 if known else NO_SUCH_NAME), 1, given, 0, 0)
    record = struct.pack(">HHHIH", 0xC00C, A, INTERNET, 60, 4) + socket.inet_aton(address)
    return head + question + (record if given else b"")


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
