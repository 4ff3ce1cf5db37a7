"""The records of a state store as bytes, read by docs/formats/store.md and not by the program under test."""
import os
import struct


def read_records(directory):
    """{id: (the whole record, its states as they are stored)}"""
    records = {}
    for name in sorted(n for n in os.listdir(directory) if n.endswith(".shard")):
        with open(f"{directory}/{name}", "rb") as file:
            data = file.read()
        at, end = struct.unpack_from("<I", data, 12)[0], struct.unpack_from("<Q", data, len(data) - 32)[0]
        while at < end:
            record_bytes, _, _, _, states_bytes, tokens, _, _, name_bytes = struct.unpack_from("<QQQQQIIIH", data, at + 8)
            meta_bytes = 5 * tokens + name_bytes
            key = data[at + 64 + 5 * tokens:at + 64 + meta_bytes].decode()
            assert key not in records, f"{key} is there twice"
            states = at + 64 + (meta_bytes + 63) // 64 * 64
            records[key] = data[at:at + record_bytes], data[states:states + states_bytes]
            at += record_bytes
    return records
