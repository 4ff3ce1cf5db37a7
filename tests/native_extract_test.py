"""eaglet extract --engine native: from a transformers folder (chosen by itself) the states are those of the model, whatever the
memory; from a GGUF file they are libllama's up to its rounding; a kill loses no pass; what cannot be is said."""
import json
import math
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import latent_gguf
import toy_target
from store_records import read_records

EAGLET, SOURCE = os.environ["EAGLET"], os.environ["EAGLET_SOURCE"]
TARGETS = f"{SOURCE}/testdata/golden_targets"


def run(*arguments):
    return subprocess.run([EAGLET, *arguments, "--progress", "plain"], capture_output=True, text=True, timeout=300, check=False)


def must(done):
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
    return done


def refused(done, code, *words):
    assert done.returncode == code and done.stderr.count("error:") == 1, f"exit {done.returncode}\n{done.stderr}"
    for word in words:
        assert word in done.stderr, (word, done.stderr)


def extract(model, conversations, out, *more):
    return run("extract", "--model", model, "--conversations", conversations, "--output-dir", out, *more, *(() if model.endswith(".gguf") else ("--target-layer-ids", "0,1,3")))


def read_store(directory):
    """{id: states as floats}"""
    documents = {}
    for key, (_, states) in read_records(directory).items():
        words = struct.unpack(f"<{len(states) // 2}H", states)
        documents[key] = struct.unpack(f"<{len(words)}f", struct.pack(f"<{len(words)}I", *(w << 16 for w in words)))
    return documents


def write_documents(path, vocab, count, seed=3):
    rng = random.Random(seed)
    with open(path, "w", encoding="utf-8") as file:
        for i in range(count):
            ids = [rng.randrange(vocab) for _ in range(rng.randrange(6, 40))]
            file.write(json.dumps({"id": f"d{i}", "input_ids": ids, "loss_mask": [0] * 3 + [1] * (len(ids) - 3)}) + "\n")


def close(a, b, relative):
    assert a.keys() == b.keys()
    for key in a:
        largest = max(map(abs, a[key]))
        worst = max(abs(x - y) for x, y in zip(a[key], b[key]))
        assert len(a[key]) == len(b[key]) and worst <= relative * largest, (key, worst / largest)


def cosines(a, b, hidden):
    """Of every state vector."""
    assert a.keys() == b.keys()
    found = []
    for key in a:
        for at in range(0, len(a[key]), hidden):
            x, y = a[key][at:at + hidden], b[key][at:at + hidden]
            found.append(sum(p * q for p, q in zip(x, y)) / math.sqrt(sum(p * p for p in x) * sum(q * q for q in y)))
    return found


def every_kind_of_folder(root):
    write_documents(f"{root}/c.jsonl", 96, 20)
    for kind in sorted(os.listdir(TARGETS)):
        if not os.path.isdir(f"{TARGETS}/{kind}"):
            continue
        done = must(extract(f"{TARGETS}/{kind}", f"{root}/c.jsonl", f"{root}/{kind}"))
        assert "engine native" in done.stderr, done.stderr
        store = read_store(f"{root}/{kind}")
        assert len(store) == 20
        small = must(extract(f"{TARGETS}/{kind}", f"{root}/c.jsonl", f"{root}/{kind}-small", "--memory", "12M"))
        assert store == read_store(f"{root}/{kind}-small")  # to the bit
        assert re.search(r"\d+ pass", small.stderr), small.stderr
        spilled = must(extract(f"{TARGETS}/{kind}", f"{root}/c.jsonl", f"{root}/{kind}-spilled", "--memory", "12M", "--spill", root))
        assert store == read_store(f"{root}/{kind}-spilled")
        assert " 1 pass of up to " in spilled.stderr, spilled.stderr
        assert not [name for name in os.listdir(root) if name.startswith("eaglet-spill")]
    refused(extract(f"{TARGETS}/qwen3", f"{root}/c.jsonl", f"{root}/x", "--spill", f"{root}/nowhere"), 66, "nowhere")


def short_tiles(root):
    write_documents(f"{root}/c.jsonl", 96, 20)
    kind = f"{TARGETS}/qwen3_moe"
    must(extract(kind, f"{root}/c.jsonl", f"{root}/full", "--compute-type", "f32"))
    must(extract(kind, f"{root}/c.jsonl", f"{root}/short", "--compute-type", "f32", "--no-deterministic"))
    close(read_store(f"{root}/full"), read_store(f"{root}/short"), 2 ** -7)  # a step of bf16


def benchmark(root):
    done = must(run("bench", "extract", "--model", f"{TARGETS}/qwen3_moe", "--tokens", "200", "--document-tokens", "30", "--json"))
    line = json.loads(done.stdout)
    assert line["tokens"] == 200 and line["tokens_per_second"] > 0 and line["peak_rss_bytes"] > 1e6, line
    assert 0 < line["needed_gflop_per_token"] < 1e-3, line
    refused(run("bench", "extract", "--model", f"{TARGETS}/qwen3_moe", "--memory", "1K"), 73, "--memory")
    refused(run("bench", "extract"), 64, "--model")
    refused(run("bench", "extract", "--streamed-layers", "1", "--passes", "3"), 64, "--passes")
    refused(run("bench", "extract", "--model", f"{TARGETS}/qwen3_moe", "--directory", root), 64, "--directory")


def longer_than_the_context(root):
    with open(f"{root}/long.jsonl", "w", encoding="utf-8") as file:
        for n in (20, 128, 129, 300):  # the target's context is 128
            file.write(json.dumps({"id": f"d{n}", "input_ids": [1 + t % 90 for t in range(n)], "loss_mask": [0] + [1] * (n - 1)}) + "\n")
    done = must(extract(f"{TARGETS}/llama_tied", f"{root}/long.jsonl", f"{root}/long"))
    assert "2 conversations are cut to the length limit" in done.stderr and " 404 tokens" in done.stderr, done.stderr


def flags_without_effect(root):
    toy_target.write_target(f"{root}/toy.gguf")
    toy_target.write_conversations(f"{root}/toy.jsonl")
    write_documents(f"{root}/c.jsonl", 96, 2)
    folder = (f"{TARGETS}/llama_tied", f"{root}/c.jsonl", f"{root}/x")
    refused(extract(*folder, "--weights", "f16"), 64, "--weights", "--engine llama")
    for flag in (("--memory", "4G"), ("--compute-type", "f32"), ("--no-deterministic",), ("--spill", root)):
        refused(extract(f"{root}/toy.gguf", f"{root}/toy.jsonl", f"{root}/x", "--engine", "llama", *flag), 64, "--engine native")
    refused(extract(*folder, "--concurrency", "4"), 64, "--concurrency", "--server")
    refused(extract(*folder, "--accept-doubtful"), 64, "--accept-doubtful", "--from")
    refused(run("extract", "--from", "vllm", root, "--conversations", f"{root}/c.jsonl", "--threads", "2"), 64, "--threads")
    refused(run("extract", "--server", "http://127.0.0.1:1", "--states-dir", root, "--model", folder[0], "--conversations", folder[1],
                "--output-dir", folder[2], "--engine", "native"), 64, "--engine")
    assert not os.path.exists(f"{root}/x")


def as_libllama(root):
    toy_target.write_target(f"{root}/toy.gguf")
    toy_target.write_conversations(f"{root}/toy.jsonl")
    for engine in ("llama", "native"):
        must(extract(f"{root}/toy.gguf", f"{root}/toy.jsonl", f"{root}/{engine}", "--engine", engine, *(("--compute-type", "f32") if engine == "native" else ())))
    close(read_store(f"{root}/llama"), read_store(f"{root}/native"), 0.02)
    # By itself: our own forward where it knows the model, but a store stays with what began it.
    assert "engine native" in must(extract(f"{root}/toy.gguf", f"{root}/toy.jsonl", f"{root}/auto")).stderr
    toy_target.write_conversations(f"{root}/more.jsonl", 26)
    assert "engine native" not in must(extract(f"{root}/toy.gguf", f"{root}/more.jsonl", f"{root}/llama")).stderr
    assert len(read_store(f"{root}/llama")) == len(read_store(f"{root}/auto")) + 2


def latent_attention_from_gguf(root):
    """What llama.cpp calls deepseek2: to the bit what the folder gives, in both layouts; and what llama.cpp makes of the same file."""
    write_documents(f"{root}/latent.jsonl", 96, 20)
    exact = ("--compute-type", "f32", "--target-layer-ids", "1,2,3")
    for kind in ("deepseek_v3", "kimi_k2_like"):
        must(run("extract", "--model", f"{TARGETS}/{kind}", "--conversations", f"{root}/latent.jsonl", "--output-dir", f"{root}/{kind}.folder", *exact))
        wanted = read_store(f"{root}/{kind}.folder")
        for whole in (False, True):
            gguf, out = f"{root}/{kind}{whole}.gguf", f"{root}/{kind}{whole}.states"
            latent_gguf.write(f"{TARGETS}/{kind}", gguf, whole)
            done = must(run("extract", "--model", gguf, "--conversations", f"{root}/latent.jsonl", "--output-dir", out, *exact))
            assert "engine native" in done.stderr and read_store(out) == wanted, (kind, whole)
            must(run("extract", "--model", gguf, "--conversations", f"{root}/latent.jsonl", "--output-dir", f"{out}.llama", "--engine", "llama",
                     "--weights", "f32", "--target-layer-ids", "1,2,3"))
            # llama.cpp computes in fp16 here and there, most where the matrix is split: now and then another expert is chosen.
            angles = cosines(read_store(f"{out}.llama"), wanted, 32)
            assert sum(angle < 0.9999 for angle in angles) <= (0 if whole else 0.03 * len(angles)), sorted(angles)[:20]


def killed(root):
    write_documents(f"{root}/many.jsonl", 96, 3000)
    command = [EAGLET, "extract", "--model", f"{TARGETS}/llama_tied", "--conversations", f"{root}/many.jsonl", "--output-dir",
               f"{root}/killed", "--progress", "none", "--target-layer-ids", "0,1,3"]
    for wait in (0.2, 0.3, 0.5):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.wait()
    must(subprocess.run(command, capture_output=True, text=True, timeout=300, check=False))
    must(run("inspect", "--verify", f"{root}/killed"))
    whole = must(extract(f"{TARGETS}/llama_tied", f"{root}/many.jsonl", f"{root}/whole"))
    assert "engine native" in whole.stderr
    assert read_store(f"{root}/whole") == read_store(f"{root}/killed")


def bad_input(root):
    write_documents(f"{root}/m.jsonl", 96, 3)
    must(extract(f"{TARGETS}/llama_tied", f"{root}/m.jsonl", f"{root}/mixed", "--compute-type", "f32"))
    write_documents(f"{root}/m.jsonl", 96, 5)
    refused(extract(f"{TARGETS}/llama_tied", f"{root}/m.jsonl", f"{root}/mixed", "--compute-type", "bf16"), 78, "products in f32", "--compute-type")
    must(extract(f"{TARGETS}/llama_tied", f"{root}/m.jsonl", f"{root}/mixed", "--compute-type", "f32"))
    assert len(read_store(f"{root}/mixed")) == 5
    write_documents(f"{root}/c.jsonl", 96, 4)
    good = f"{TARGETS}/qwen3"
    refused(extract(good, f"{root}/c.jsonl", f"{root}/x", "--memory", "10K"), 73, "--memory")
    refused(extract(good, f"{root}/c.jsonl", f"{root}/x", "--memory", "lots"), 64, "--memory")
    refused(extract(good, f"{root}/c.jsonl", f"{root}/x", "--engine", "turbo"), 64, "--engine")
    shutil.copytree(good, f"{root}/odd")
    with open(f"{good}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    for name, value, word in (("model_type", "mamba", "mamba"), ("hidden_act", "gelu", "gelu"), ("intermediate_size", 80, "gate_proj")):
        with open(f"{root}/odd/config.json", "w", encoding="utf-8") as file:
            json.dump({**config, name: value}, file)
        refused(extract(f"{root}/odd", f"{root}/c.jsonl", f"{root}/y", "--engine", "native"), 78, word)
    shutil.copy(f"{good}/config.json", f"{root}/odd/config.json")
    os.truncate(f"{root}/odd/model.safetensors", 20000)
    done = extract(f"{root}/odd", f"{root}/c.jsonl", f"{root}/y")
    assert done.returncode not in (0, -11, -6) and "model.safetensors" in done.stderr, done.stderr


def main():
    for test in (every_kind_of_folder, short_tiles, benchmark, longer_than_the_context, flags_without_effect, as_libllama, latent_attention_from_gguf, killed, bad_input):
        with tempfile.TemporaryDirectory(prefix="eaglet-native-") as root:
            start = time.monotonic()
            test(root)
            print(f"ok {test.__name__} ({time.monotonic() - start:.1f} s)")


if __name__ == "__main__":
    main()
