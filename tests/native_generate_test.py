"""eaglet generate with the native engine, on a tiny model of random numbers: chosen by itself and said; answers that hang on prompt and
seed alone; states kept on the way that are those of a separate extraction; kills, other settings and what cannot be."""
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import toy_target
from native_extract_test import EAGLET, SOURCE, must, read_store, refused, run


class Place:
    def __init__(self, root):
        self.root, self.model, self.prompts = root, f"{root}/toy.gguf", f"{root}/prompts.jsonl"
        toy_target.write_target(self.model)
        self.write_prompts(40)

    def write_prompts(self, count):
        with open(self.prompts, "w", encoding="utf-8") as file:
            for i in range(count):
                file.write(json.dumps({"id": f"p{i}", "prompt_ids": [1] + [3 + (i * 7 + t * 5) % 300 for t in range(1 + i % 9)]}) + "\n")

    def generate(self, name, *more):
        return run("generate", "--model", self.model, "--prompts", self.prompts, "--output", f"{self.root}/{name}.jsonl", "--max-tokens", "30", *more)

    def answers(self, name):
        with open(f"{self.root}/{name}.jsonl", encoding="utf-8") as file:
            return {row["id"]: row["input_ids"] for row in map(json.loads, file)}


def chosen_by_itself(place):
    done = must(place.generate("auto"))
    assert "engine native: products in " in done.stderr, done.stderr
    with open(f"{place.root}/auto.settings.json", encoding="utf-8") as file:
        assert json.load(file)["engine"] == "native"
    assert "engine libllama" in must(place.generate("stored", "--weights", "stored")).stderr
    assert "engine libllama" in must(place.generate("llama", "--engine", "llama")).stderr
    # A file that libllama began, or that is from before there was a choice, goes on with it.
    place.write_prompts(44)
    with open(f"{place.root}/llama.settings.json", encoding="utf-8") as file:
        settings = json.load(file)
    assert settings.pop("engine") == "llama"
    with open(f"{place.root}/llama.settings.json", "w", encoding="utf-8") as file:
        json.dump(settings, file)
    done = must(place.generate("llama"))
    assert "engine libllama" in done.stderr and "the answers in the file are libllama's" in done.stderr, done.stderr
    assert len(place.answers("llama")) == 44
    refused(place.generate("llama", "--engine", "native"), 78, 'engine was "llama", is "native"')
    place.write_prompts(40)


def prompt_and_seed_alone(place):
    for sampling in ((), ("--temperature", "1", "--top-k", "50", "--min-p", "0.001", "--top-p", "0.95", "--repetition-penalty", "1.1", "--seed", "5")):
        name = f"seed{len(sampling)}"
        must(place.generate(name, "--compute-type", "f32", *sampling))
        must(place.generate(name + "-one", "--compute-type", "f32", "--parallel", "1", *sampling))
        assert place.answers(name) == place.answers(name + "-one") and len(place.answers(name)) == 40
    assert place.answers("seed0") != place.answers(name)
    must(place.generate("other", "--compute-type", "f32", *sampling[:-1], "6"))
    assert place.answers(name) != place.answers("other")
    must(place.generate("llama-greedy", "--engine", "llama", "--weights", "f32"))
    same = sum(place.answers("llama-greedy")[key] == ids for key, ids in place.answers("seed0").items())
    assert same >= 36, f"{same} of 40 greedy answers are libllama's"  # near ties fall either way


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def kept_states(place):
    done = must(place.generate("kept", "--compute-type", "f32", "--keep-states", f"{place.root}/kept-states", "--target-layer-ids", "1,4,7", "--json"))
    assert json.loads(done.stdout)["states_kept"] == 40
    least, most = map(float, re.search(r"states of 40 answers: ([\d.]+) kB to ([\d.]+) kB, .* free", done.stderr).groups())
    taken = sum(os.path.getsize(f"{place.root}/kept-states/{n}") for n in os.listdir(f"{place.root}/kept-states") if n.endswith(".shard")) / 1000
    assert least < taken <= most + 1, (least, taken, most)
    extract = ("extract", "--model", place.model, "--conversations", f"{place.root}/kept.jsonl", "--compute-type", "f32", "--target-layer-ids", "1,4,7")
    must(run(*extract, "--output-dir", f"{place.root}/apart"))
    kept, apart = read_store(f"{place.root}/kept-states"), read_store(f"{place.root}/apart")
    assert kept.keys() == apart.keys() and len(kept) == 40
    width = 4 * toy_target.HIDDEN
    for key, ids in place.answers("kept").items():
        assert len(kept[key]) == len(apart[key]) == width * len(ids), key
        for at in range(0, len(kept[key]), toy_target.HIDDEN):
            assert cosine(kept[key][at:at + toy_target.HIDDEN], apart[key][at:at + toy_target.HIDDEN]) >= 0.9999, (key, at)
    # Nothing is left for extract to do; with more answers it adds theirs to the same store.
    done = must(run(*extract, "--output-dir", f"{place.root}/kept-states", "--json"))
    assert json.loads(done.stdout)["already_done"] == 40, done.stdout
    place.write_prompts(43)
    must(place.generate("kept", "--compute-type", "f32"))
    must(run(*extract, "--output-dir", f"{place.root}/kept-states"))
    assert len(read_store(f"{place.root}/kept-states")) == 43
    place.write_prompts(40)
    refused(place.generate("x", "--keep-states", f"{place.root}/x", "--engine", "llama"), 64, "--keep-states")
    refused(place.generate("x", "--target-layer-ids", "1,2,3"), 64, "--keep-states")
    refused(place.generate("x", "--keep-states", f"{place.root}/x", "--target-layer-ids", "1,2,99"), 64, "99")
    # The same store for other answers of the same ids would hold states of two conversations.
    refused(place.generate("again", "--compute-type", "f32", "--keep-states", f"{place.root}/kept-states", "--target-layer-ids", "1,4,7"), 78, "has states of document")


def killed(place):
    place.write_prompts(3000)
    name, states = f"{place.root}/killed.jsonl", f"{place.root}/killed-states"
    command = [EAGLET, "generate", "--model", place.model, "--prompts", place.prompts, "--output", name, "--max-tokens", "30", "--keep-states", states, "--progress", "none"]
    for _ in range(2):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        size = os.path.getsize(name) if os.path.exists(name) else 0
        deadline = time.time() + 120
        while time.time() < deadline and process.poll() is None and not (os.path.exists(name) and os.path.getsize(name) > size + 50000):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    must(subprocess.run(command, capture_output=True, text=True, timeout=300, check=False))
    with open(name, encoding="utf-8") as file:
        ids = [json.loads(line)["id"] for line in file]
    assert len(ids) == len(set(ids)) == 3000
    must(run("extract", "--model", place.model, "--conversations", name, "--output-dir", states))  # what a kill kept from the store
    assert len(read_store(states)) == 3000
    place.write_prompts(40)


def what_cannot_be(place):
    refused(place.generate("x", "--engine", "vllm"), 64, "--engine", "native")
    refused(place.generate("x", "--engine", "native", "--weights", "f16"), 64, "--weights", "--engine llama")
    for flag in (("--memory", "4G"), ("--compute-type", "f32"), ("--tokenizer", place.model)):
        refused(place.generate("x", "--engine", "llama", *flag), 64, flag[0])
    refused(place.generate("x", "--engine", "native", "--memory", "100K"), 73, "--memory")
    refused(place.generate("x", "--memory", "100K"), 73, "--memory")
    refused(place.generate("x", "--engine", "native", "--memory", "soon"), 64, "--memory")
    refused(place.generate("x", "--top-k", "-1"), 64, "--top-k")
    refused(place.generate("x", "--min-p", "2"), 64, "--min-p")
    refused(place.generate("x", "--repetition-penalty", "0"), 64, "--repetition-penalty")
    for flag in (("--top-k", "3"), ("--engine", "native"), ("--parallel", "3"), ("--threads", "2"), ("--keep-states", "x")):
        refused(run("generate", "--server", "http://127.0.0.1:1", "--prompts", place.prompts, "--output", f"{place.root}/x.jsonl", *flag), 64, flag[0])
    refused(run("generate", "--model", f"{place.root}/none.gguf", "--prompts", place.prompts, "--output", f"{place.root}/x.jsonl", "--compute-type", "f32"), 66, "none.gguf")
    folder = f"{SOURCE}/testdata/golden_targets/llama_tied"
    generate = ("generate", "--model", folder, "--prompts", place.prompts, "--output", f"{place.root}/x.jsonl")
    refused(run(*generate), 66, "tokenizer.json")
    broken = f"{place.root}/broken"
    shutil.copytree(folder, broken)
    os.truncate(f"{broken}/model.safetensors", os.path.getsize(f"{folder}/model.safetensors") // 2)
    refused(run("generate", "--model", broken, *generate[3:], "--tokenizer", place.model), 65, "model.safetensors")
    refused(run(*generate, "--tokenizer", place.model), 78, "320", "96")
    assert not os.path.exists(f"{place.root}/x.jsonl")


def main():
    with tempfile.TemporaryDirectory(prefix="eaglet-native-generate-") as root:
        place = Place(root)
        for test in (chosen_by_itself, prompt_and_seed_alone, kept_states, killed, what_cannot_be):
            begun = time.time()
            test(place)
            print(f"ok {test.__name__} ({time.time() - begun:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
