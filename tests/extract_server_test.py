"""eaglet extract --server: states from a (scripted) vLLM with its hidden-states connector. What is stored is what the server wrote,
nothing is asked twice, its files go when they are taken, and what it names outside of --states-dir is neither opened nor deleted."""
import fcntl
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import scripted_states
from scripted_server import Answer, Server

EAGLET = os.environ["EAGLET"]
LAYERS, WIDTH, SLOTS, VOCAB = 8, 16, 4, 200


def read_store(folder):
    """Ids and states of every document of a bf16 store (docs/formats/store.md)."""
    documents = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".shard"):
            continue
        with open(f"{folder}/{name}", "rb") as file:
            data = file.read()
        at, end = struct.unpack_from("<I", data, 12)[0], struct.unpack_from("<Q", data, len(data) - 32)[0]
        while at < end:
            assert data[at:at + 8] == b"EGLTDOC\n"
            record, states_bytes = struct.unpack_from("<Q", data, at + 8)[0], struct.unpack_from("<Q", data, at + 40)[0]
            tokens, name_bytes = struct.unpack_from("<I", data, at + 48)[0], struct.unpack_from("<H", data, at + 60)[0]
            meta = at + 64
            states = meta + (tokens * 5 + name_bytes + 63) // 64 * 64
            key = data[meta + tokens * 5:meta + tokens * 5 + name_bytes].decode()
            documents[key] = (struct.unpack_from(f"<{tokens}i", data, meta), data[states:states + states_bytes])
            at += record
    return documents


class Place:
    """A folder of one test: target, conversations, the shared folder."""

    def __init__(self, root, rows=24):
        self.root, self.states_dir, self.store = root, f"{root}/shared", f"{root}/states"
        os.makedirs(self.states_dir)
        self.config = f"{root}/config.json"
        with open(self.config, "w") as file:
            json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH,
                       "num_hidden_layers": LAYERS, "vocab_size": VOCAB, "num_attention_heads": 2, "num_key_value_heads": 1,
                       "head_dim": 8, "rms_norm_eps": 1e-6}, file)
        self.rows = [{"id": f"d{i}", "input_ids": [1] + [(7 * i + k * k) % VOCAB for k in range(11 + i % 5)],
                      "loss_mask": [0] * 6 + [1] * (6 + i % 5)} for i in range(rows)]
        with open(f"{root}/c.jsonl", "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in self.rows)

    def command(self, server, *more):
        return [EAGLET, "extract", "--server", server.url, "--states-dir", self.states_dir, "--conversations",
                f"{self.root}/c.jsonl", "--model", self.config, "--output-dir", self.store, "--concurrency", "4",
                "--retry-wait", "0.05", "--progress", "plain", *more]

    def run(self, server, *more, code=0):
        done = subprocess.run(self.command(server, *more), capture_output=True, text=True, timeout=120)
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def connector(self, odd=None, delay=0.0):
        return scripted_states.Connector(self.states_dir, SLOTS, WIDTH, odd, delay)

    def check_store(self, without=()):
        """Every document's states are the numbers that the server wrote."""
        stored = read_store(self.store)
        assert set(stored) == {row["id"] for row in self.rows} - set(without), sorted(stored)
        for row in self.rows:
            if row["id"] in stored:
                ids, states = stored[row["id"]]
                assert list(ids) == row["input_ids"]
                assert states == scripted_states.states_of(row["input_ids"], SLOTS, WIDTH), f"the states of {row['id']} differ"

    def left(self):
        return sorted(os.listdir(self.states_dir))


def whole(place):
    """Slow files behind locks, 503 and broken connections: all is taken, bounded, once."""
    def odd(number, ids):
        if number in (2, 9):
            return Answer({"error": {"message": "busy"}}, status=503, headers={"Retry-After": "0"})
        return Answer({}, hang_up=True) if number == 5 else None

    script = place.connector(odd, delay=0.02)
    with Server(script, owner="vllm") as server:
        report = json.loads(place.run(server, "--json", "--target-layer-ids", "2,4,5").stdout)
        assert report["documents"] == 24 and report["requests"] == 24 and report["left_out"] == {}, report
        assert len(script.asked) == 27 and script.most_files <= 4, (len(script.asked), script.most_files)
        assert place.left() == [], place.left()
        again = json.loads(place.run(server, "--json", "--target-layer-ids", "2,4,5").stdout)
        assert again["already_done"] == 24 and len(script.asked) == 27, again
    place.check_store()
    assert not os.path.exists(f"{place.store}/server_files.jsonl")


def killed(place):
    """kill -9 in the middle, several times: no document is asked for again whose file was named, and no file stays."""
    script = place.connector(delay=0.05)
    with Server(script, owner="vllm") as server:
        for _ in range(3):
            process = subprocess.Popen(place.command(server), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            before = len(script.asked)
            while process.poll() is None and len(script.asked) < before + 5:
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
            process.wait()
        time.sleep(0.3)  # the server's writers end
        named = set()
        if os.path.exists(f"{place.store}/server_files.jsonl"):
            with open(f"{place.store}/server_files.jsonl") as file:
                named = {json.loads(line)["file"] for line in file if line.endswith("\n")}
        lost = [name for name in place.left() if name.endswith(".safetensors") and f"{place.states_dir}/{name}" not in named]
        asked_before = len(script.asked)
        report = json.loads(place.run(server, "--json").stdout)
        assert report["documents"] == 24, report
        assert len(script.asked) - asked_before == report["requests"] == 24 - report["already_done"] - report["taken_over"], report
        # Only files of answers that the killed process never read are not ours to delete: at most one for each request under way.
        assert [n for n in place.left() if n.endswith(".safetensors")] == lost and len(lost) <= 12, (place.left(), lost)
        counts = [sum(ids == row["input_ids"] for ids in script.asked) for row in place.rows]
        assert sum(counts) - 24 == len(lost), (counts, lost)
    place.check_store()


def full_disk(place):
    """A disk that fills up: a clean stop with all finished documents kept, and the next run takes the files that were named."""
    script = place.connector()

    def small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (14_000, resource.RLIM_INFINITY))  # write(2) fails as on a full disk

    with Server(script, owner="vllm") as server:
        full = subprocess.run(place.command(server), capture_output=True, text=True, timeout=60, preexec_fn=small_disk)
        assert full.returncode == 73 and "do:" in full.stderr, (full.returncode, full.stderr)
        asked, named = len(script.asked), [name for name in place.left() if name.endswith(".safetensors")]
        assert 0 < len(named) <= 4 and asked < 24, (named, asked)
        report = json.loads(place.run(server, "--json").stdout)
        assert report["taken_over"] == len(named) and report["documents"] == 24, (report, named)
        assert len(script.asked) == 24 and place.left() == [], (len(script.asked), place.left())
    place.check_store()


def refused_paths(place):
    """Paths that lead out of the folder, to a link, a pipe, a folder, another kind of file: refused, never opened or deleted."""
    outside = f"{place.root}/outside"
    os.makedirs(outside)
    good = place.connector().good(place.rows[0]["input_ids"])
    with open(f"{outside}/secret.safetensors", "wb") as file:
        file.write(good)
    os.symlink(f"{outside}/secret.safetensors", f"{place.states_dir}/link.safetensors")
    os.symlink(outside, f"{place.states_dir}/linked-folder")
    os.mkfifo(f"{place.states_dir}/pipe.safetensors")
    os.mkdir(f"{place.states_dir}/folder.safetensors")
    with open(f"{place.states_dir}/notes.txt", "w") as file:
        file.write("mine")
    with open(f"{place.root}/victim.lock", "w") as file:
        file.write("mine")
    names = [f"{outside}/secret.safetensors", "../outside/secret.safetensors", "link.safetensors",
             "linked-folder/secret.safetensors", "pipe.safetensors", "folder.safetensors", "notes.txt", "", "/etc/passwd",
             f"{place.states_dir}/../outside/secret.safetensors", ".", "/dev/zero"]

    def odd(number, ids):
        if number >= len(names):
            return None
        return lambda reply: Answer({**reply, "kv_transfer_params": {"hidden_states_path": names[number]}})

    script = place.connector(odd)
    before = os.stat(f"{outside}/secret.safetensors")
    with Server(script, owner="vllm") as server:
        # One after another, so that the script knows which document gets which name.
        report = json.loads(place.run(server, "--json", "--concurrency", "1", "--wait-seconds", "0.2").stdout)
        assert report["documents"] == 24 - len(names), report
        assert report["left_out"] == {"refused path": len(names)}, report
    after = os.stat(f"{outside}/secret.safetensors")
    assert (before.st_mtime_ns, before.st_atime_ns, before.st_size) == (after.st_mtime_ns, after.st_atime_ns, after.st_size)
    assert place.left() == ["folder.safetensors", "link.safetensors", "linked-folder", "notes.txt", "pipe.safetensors"], place.left()
    with open(f"{place.store}/left_out.jsonl") as file:
        told = [json.loads(line) for line in file]
    assert len(told) == len(names) and any("outside the folder" in line["reason"] for line in told), told
    # A second run asks for those alone, and is whole.
    with Server(place.connector(), owner="vllm") as server:
        report = json.loads(place.run(server, "--json").stdout)
        assert report["requests"] == len(names) and report["documents"] == 24, report
    place.check_store()


def bad_files(place):
    """Other ids, too few rows, NaN, half a file, no file at all: asked once more, then left out by name."""
    good = place.connector()

    def odd(number, ids):
        states = scripted_states.states_of(ids, SLOTS, WIDTH)
        bad = {"d3": scripted_states.safetensors(ids[::-1], states, SLOTS, WIDTH),
               "d5": scripted_states.safetensors(ids, states, SLOTS, WIDTH, rows=len(ids) - 4),
               "d7": scripted_states.safetensors(ids, b"\xc0\x7f" + states[2:], SLOTS, WIDTH),
               "d9": good.good(ids)[:200],
               "d10": scripted_states.safetensors(ids, states, 2, WIDTH)}
        for key, data in bad.items():
            if ids == place.rows[int(key[1:])]["input_ids"]:
                return data
        if ids == place.rows[11]["input_ids"]:
            return lambda reply: Answer(reply)  # names a file that never comes
        if ids == place.rows[12]["input_ids"]:
            return lambda reply: Answer({**reply, "choices": [{"text": "", "prompt_token_ids": ids[:-1]}]})
        if ids == place.rows[13]["input_ids"]:
            return Answer({"error": {"message": "prompt too long"}}, status=400)
        return None

    script = place.connector(odd)
    left_out = {"d3", "d5", "d7", "d9", "d10", "d11", "d12", "d13"}
    with Server(script, owner="vllm") as server:
        done = place.run(server, "--json", "--wait-seconds", "0.5")
        report = json.loads(done.stdout)
        assert report["documents"] == 24 - len(left_out), report
        assert report["left_out"] == {"other tokens": 2, "rows are not the tokens'": 1, "NaN": 1, "cut/empty/header": 1,
                                      "other shape": 1, "no file": 1, "refused by the server": 1}, report
        assert place.left() == [], place.left()  # what answered our requests goes, good or bad
    with open(f"{place.store}/left_out.jsonl") as file:
        assert {json.loads(line)["id"] for line in file} == left_out
    place.check_store(left_out)


def locked(place):
    """Locks that get free late, or never: such a file is named and kept for the next run, its document asked for once more."""
    held = {}

    def keep_lock(reply, key, ids, seconds=None):
        path = reply["kv_transfer_params"]["hidden_states_path"]
        lock = open(path + ".lock", "w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open(path, "wb") as file:
            file.write(script.good(ids))
        held.setdefault(key, []).append((path, lock))
        if seconds:
            threading.Timer(seconds, lock.close).start()
        return Answer(reply)

    def odd(number, ids):
        key = next(row["id"] for row in place.rows if row["input_ids"] == ids)
        if key == "d4" and key not in held:  # the second asking brings good states
            return lambda reply: keep_lock(reply, key, ids)
        if key == "d8":
            return lambda reply: keep_lock(reply, key, ids)
        if key == "d12":  # free a little after both askings are given up
            return lambda reply: keep_lock(reply, key, ids, seconds=1.4)
        return None

    script = place.connector(odd)
    with Server(script, owner="vllm") as server:
        done = place.run(server, "--json", "--wait-seconds", "1")
        report = json.loads(done.stdout)
        assert report["documents"] == 23 and report["left_out"] == {"locked": 1}, report
        stuck = {path for key in ("d4", "d8") for path, _ in held[key]}
        assert {line["file"] for line in report["left_behind"]} == stuck and len(stuck) == 3, (report, stuck)
        assert sorted(name for name in place.left() if name.endswith("tensors")) == sorted(map(os.path.basename, stuck)), place.left()
        assert "3 files of states stay in" in done.stderr and "server_files.jsonl names them" in done.stderr, done.stderr
        place.check_store({"d8"})
        for path, lock in held["d4"] + held["d8"]:
            lock.close()
        asked = len(script.asked)
        report = json.loads(place.run(server, "--json").stdout)
        assert report["taken_over"] == 1 and report["requests"] == 0 and report["documents"] == 24, report
        assert report["left_behind"] == [] and len(script.asked) == asked and place.left() == [], (report, place.left())
    place.check_store()
    assert not os.path.exists(f"{place.store}/server_files.jsonl")


def hopeless(place):
    """A server without the connector, one that is no vLLM, a wrong key, a folder that is not there: told at once, with what to do."""
    with Server(lambda route, request: Answer({"choices": [{"text": "x"}]}), owner="vllm") as server:
        told = place.run(server, code=78).stderr
        assert "name no file of states" in told and "ExampleHiddenStatesConnector" in told and "[2, 4, 5, 8]" in told, told
        missing = place.run(server, "--states-dir", f"{place.root}/nowhere", code=66).stderr
        assert "no such folder" in missing, missing
        both = subprocess.run([*place.command(server), "--from", "vllm", place.states_dir], capture_output=True, text=True)
        assert both.returncode == 64 and "exclude each other" in both.stderr, both
    handle = {"choices": [{"text": "x"}], "kv_transfer_params": {"handle": "h"}}
    with Server(lambda route, request: Answer(handle), owner="vllm") as server:
        assert "a handle, not a file" in place.run(server, code=78).stderr
    with Server(lambda route, request: Answer({}, status=401), owner="vllm") as server:
        assert "refuses the API key" in place.run(server, code=77).stderr
    with Server(lambda route, request: Answer({}), owner="sglang") as server:
        assert "only vLLM keeps hidden states" in place.run(server, code=78).stderr
    short = place.connector(lambda number, ids: scripted_states.safetensors(
        ids, scripted_states.states_of(ids, SLOTS, WIDTH), SLOTS, WIDTH, rows=len(ids) - 4))
    with Server(short, owner="vllm") as server:  # the prefix cache is on: every document is short
        told = place.run(server, code=78).stderr
        assert "--no-enable-prefix-caching" in told and len(short.asked) <= 24, told


def main():
    for test in (whole, killed, full_disk, refused_paths, bad_files, locked, hopeless):
        with tempfile.TemporaryDirectory(prefix="eaglet-extract-server-") as root:
            start = time.monotonic()
            test(Place(root))
            print(f"{test.__name__}: {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
