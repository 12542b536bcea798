"""The keeper's files, read without any code of ours: src/base/tag.h and src/keep/boxfile.h say how they are written."""

import struct

HEAD = struct.Struct("<4sHBBII")        # magic, schema, kind, unused, length, sum
STRUCTS = {4: {3: {}, 6: {}}}           # tags of structs: the order; its limits and its mounts


def fields(data, structs=()):
    """{tag: [values]}; a value is bytes, or what is in it if it is a struct."""
    found = {}
    while data:
        tag, size = struct.unpack_from("<HH", data)
        value, data = data[4:4 + size], data[4 + size:]
        assert len(value) == size, f"field {tag} is cut short"
        found.setdefault(tag, []).append(fields(value, structs[tag]) if tag in structs else value)
    return found


def read(path):
    """Schema and fields of a record or note."""
    data = path.read_bytes()
    magic, schema, _, _, size, total = HEAD.unpack_from(data)
    body = data[HEAD.size:HEAD.size + size]
    assert magic == b"CvBx" and len(body) == size, f"{path} is no such file"
    assert fnv(body) == total, f"{path}: its sum is wrong"
    return schema, fields(body, STRUCTS)


def fnv(data):
    total = 2166136261
    for byte in data:
        total = (total ^ byte) * 16777619 & 0xFFFFFFFF
    return total


def number(value):
    return int.from_bytes(value, "little")
