"""vLLM's hidden-states connector as a script: a request of token ids is answered with the name of a file that appears beside it,
whole when its lock is free. The states are a function of the ids, so a test knows them."""
import fcntl
import json
import os
import random
import struct
import threading
import time

from scripted_server import Answer


def bf16(value):
    return struct.unpack("<I", struct.pack("<f", value))[0] >> 16


def states_of(ids, slots, width):
    """bf16 numbers [tokens, slots, width], as bytes: each token's own, with a little of its place."""
    rows = []
    for position, token in enumerate(ids):
        rng = random.Random(token * 1009 + position)
        rows += [bf16(rng.uniform(-2, 2)) for _ in range(slots * width)]
    return struct.pack(f"<{len(rows)}H", *rows)


def safetensors(ids, states, slots, width, rows=None):
    count = len(ids) if rows is None else rows
    states = states[:count * slots * width * 2]
    tokens = struct.pack(f"<{len(ids)}q", *ids)
    header = json.dumps({
        "hidden_states": {"dtype": "BF16", "shape": [count, slots, width], "data_offsets": [0, len(states)]},
        "token_ids": {"dtype": "I64", "shape": [len(ids)], "data_offsets": [len(states), len(states) + len(tokens)]}}).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + states + tokens


class Connector:
    """A script for scripted_server.Server. `odd(number, ids)` may give another Answer, or a function that writes the file."""

    def __init__(self, folder, slots, width, odd=None, delay=0.0):
        self.folder, self.slots, self.width, self.odd, self.delay = folder, slots, width, odd, delay
        self.asked, self.most_files, self.lock = [], 0, threading.Lock()

    def good(self, ids):
        return safetensors(ids, states_of(ids, self.slots, self.width), self.slots, self.width)

    def _write(self, path, data):
        # The lock is there and held before the reply goes; the writer lets go when the file is whole.
        lock = open(path + ".lock", "w")
        fcntl.flock(lock, fcntl.LOCK_EX)

        def finish():
            if self.delay:
                time.sleep(self.delay)
            with open(path, "wb") as file:
                file.write(data[:len(data) // 2])
                file.flush()
                if self.delay:
                    time.sleep(self.delay)
                file.write(data[len(data) // 2:])
            lock.close()

        threading.Thread(target=finish, daemon=True).start()

    def __call__(self, route, request):
        assert route == "/v1/completions", route
        assert request["max_tokens"] == 1 and request["return_token_ids"] is True, request
        ids = request["prompt"]
        with self.lock:
            number = len(self.asked)
            self.asked.append(ids)
            files = sum(name.endswith(".safetensors") for name in os.listdir(self.folder))
            self.most_files = max(self.most_files, files)
        reply = {"choices": [{"text": "x", "finish_reason": "length", "token_ids": [5], "prompt_token_ids": ids}],
                 "kv_transfer_params": {"hidden_states_path": f"{self.folder}/cmpl-{os.getpid()}-{id(self)}-{number}.safetensors"}}
        odd = self.odd(number, ids) if self.odd else None
        if isinstance(odd, Answer):
            return odd
        if callable(odd):
            return odd(reply)
        self._write(reply["kv_transfer_params"]["hidden_states_path"], self.good(ids) if odd is None else odd)
        return Answer(reply)
