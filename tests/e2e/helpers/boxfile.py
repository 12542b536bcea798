"""The keeper's files by hand: a head (magic, schema, kind, length, sum) and tagged fields; src/keep/boxfile.h."""

import pathlib
import struct

HEAD = struct.Struct("<4sHHII")
MAGIC = b"CvBx"
BOOT, ORDER, PID, FINGERPRINT, IS, CLIENT_STARTED = 3, 4, 6, 8, 10, 16
MARK, CLAIM = 7, 1                      # of an order; of its mark
ASTRAY = 8                              # a bit of IS


def sum_of(body):
    value = 2166136261
    for byte in body:
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


def fields(body):
    found = []
    while body:
        tag, length = struct.unpack_from("<HH", body)
        assert len(body) >= 4 + length, body
        found.append((tag, body[4:4 + length]))
        body = body[4 + length:]
    return found


def read(path):
    """Schema, kind, and the fields in their order."""
    data = pathlib.Path(path).read_bytes()
    magic, schema, kind, length, checksum = HEAD.unpack_from(data)
    body = data[HEAD.size:HEAD.size + length]
    assert magic == MAGIC and checksum == sum_of(body), path
    return schema, kind, fields(body)


def field(tag, value):
    return struct.pack("<HH", tag, len(value)) + value


def write(path, schema, kind, items):
    body = b"".join(field(tag, value) for tag, value in items)
    pathlib.Path(path).write_bytes(HEAD.pack(MAGIC, schema, kind, len(body), sum_of(body)) + body)


def set_boot(path, boot):
    """As if it had been written in another boot of the machine."""
    schema, kind, items = read(path)
    assert dict(items)[BOOT].strip() == pathlib.Path("/proc/sys/kernel/random/boot_id").read_bytes().strip(), path
    write(path, schema, kind, [(tag, boot + b"\n" if tag == BOOT else value) for tag, value in items])
