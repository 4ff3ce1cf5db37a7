"""eaglet generate and evaluate against a real llama-server (scripts/setup --llama-server): token ids, resume, acceptance of a draft
that it serves. Skipped where the server was not built."""
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

EAGLET, MODEL = os.environ["EAGLET"], os.environ["EAGLET_MODEL"]
SERVER = os.environ.get("EAGLET_LLAMA_SERVER", os.path.join(os.path.dirname(MODEL), "llama-server-0c1e570"))
SOURCE = os.environ["EAGLET_SOURCE"]


def eaglet(*arguments, code=0):
    result = subprocess.run([EAGLET, *arguments, "--progress", "plain"], capture_output=True, text=True, timeout=600)
    assert result.returncode == code, f"exit {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result


class LlamaServer:
    def __init__(self, place, *more):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = open(f"{place}/server.log", "w")
        self.process = subprocess.Popen([SERVER, "-m", MODEL, "--host", "127.0.0.1", "--port", str(self.port), "-np", "4", "-c",
                                         "4096", "-t", "2", "--metrics", "--jinja", *more],
                                        stdout=self.log, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()  # it has nothing to save
        self.process.wait()


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


def wait_for(server):
    for _ in range(240):
        try:
            return post(server.url + "/tokenize", {"content": "a"})
        except OSError:
            time.sleep(0.5)
    raise AssertionError("the server does not come up")


def rows(path):
    with open(path) as file:
        return {row["id"]: row for row in map(json.loads, file)}


def generate(place, server):
    prompts = f"{place}/prompts.jsonl"
    with open(prompts, "w") as file:
        for i in range(6):
            file.write(json.dumps({"id": f"p{i}", "messages": [{"role": "user", "content": f"Name {i + 2} colours."}]}) + "\n")
    command = ("generate", "--server", server.url, "--prompts", prompts, "--output", f"{place}/c.jsonl", "--max-tokens", "24",
               "--wait-ready", "120", "--concurrency", "4")
    eaglet(*command, "--max-prompts", "3")
    report = json.loads(eaglet(*command, "--json").stdout)
    assert report["already_done"] == 3 and report["answered"] == 3 and report["served"]["tokenised_here"] == 0, report
    kept = rows(f"{place}/c.jsonl")
    assert len(kept) == 6
    for key, row in kept.items():
        # What the server itself makes of the row: the prompt's ids are those of its template, the answer's its own tokens.
        question = row["messages"][0]["content"]
        text = post(server.url + "/apply-template", {"messages": [{"role": "user", "content": question}]})["prompt"]
        prompt = post(server.url + "/tokenize", {"content": text, "add_special": True, "parse_special": True})["tokens"]
        start = row["loss_mask"].index(1)
        assert row["input_ids"][:start] == prompt, key
        answer = row["input_ids"][start:]
        assert len(answer) <= 24 and (row["finish_reason"] == "length") == (len(answer) == 24 and answer[-1] != 2), row
        said = post(server.url + "/detokenize", {"tokens": answer})["content"].replace("<|im_end|>", "")
        assert said.strip() == row["text"].strip(), (said, row["text"])
    # The embedded target, greedy, with the same weights, mostly says the same.
    eaglet("generate", "--model", MODEL, "--prompts", prompts, "--output", f"{place}/own.jsonl", "--max-tokens", "24",
           "--weights", "stored", "--threads", "2")
    own = rows(f"{place}/own.jsonl")
    same_prompts = sum(row["input_ids"][:row["loss_mask"].index(1)] == own[key]["input_ids"][:own[key]["loss_mask"].index(1)]
                       for key, row in kept.items())
    assert same_prompts == 6, "the server's prompts are not the embedded target's"


def evaluate(place):
    """A small draft, trained on a few sample answers, served by llama-server itself: what it accepts is what we walk."""
    conversations = f"{SOURCE}/recipes/learning-check-conversations.jsonl"
    with open(conversations) as file:
        few = [line for line in file][:12]
    with open(f"{place}/few.jsonl", "w") as file:
        file.writelines(few)
    states, draft = f"{place}/states", f"{place}/draft"
    eaglet("extract", "--model", MODEL, "--conversations", f"{place}/few.jsonl", "--output-dir", states, "--threads", "2",
           "--max-seq-len", "128", "--weights", "stored")
    eaglet("train", "--model", MODEL, "--store", states, "--output-dir", draft, "--epochs", "5", "--max-seq-len", "128",
           "--draft-vocab-size", "1024", "--lr", "1e-3", "--hold-out-every", "0", "--threads", "2")
    eaglet("export", "--draft", f"{draft}/checkpoints/latest", "--model", MODEL, "--output", f"{place}/draft.gguf", "--type", "f16")
    with LlamaServer(place, "-md", f"{place}/draft.gguf", "--spec-type", "draft-eagle3", "--spec-draft-n-max", "2") as server:
        common = ("evaluate", "--draft", f"{draft}/checkpoints/latest", "--model", MODEL, "--store", states, "--hold-out-every",
                  "4", "--conversations", f"{place}/few.jsonl", "--max-prompts", "3", "--threads", "2")
        wait_for(server)
        result = json.loads(eaglet(*common, "--server", server.url, "--draft-length", "2", "--json").stdout)
        served, verdict = result["server"], result["server_against_walked"]
        assert served["source"] == "timings" and served["accepted"] > 0 and served["prompts"] == 3, served
        assert verdict["good"] and 0.85 < verdict["ratio"] < 1.2, (served, verdict)
        print(f"served {served['acceptance_length']:.3f}, walked {verdict['walked']:.3f} tokens per pass")
    # The same draft told to read other layers: the server accepts next to nothing, and the command says so.
    with open(f"{place}/draft.gguf", "rb") as file:
        data = file.read()
    right, wrong = struct.pack("<3i", 2, 15, 27), struct.pack("<3i", 29, 28, 1)
    assert data.count(right) == 1
    with open(f"{place}/wrong.gguf", "wb") as file:
        file.write(data.replace(right, wrong))
    with LlamaServer(place, "-md", f"{place}/wrong.gguf", "--spec-type", "draft-eagle3", "--spec-draft-n-max", "2") as server:
        wait_for(server)
        low = eaglet(*common, "--server", server.url, "--draft-length", "2", code=1)
        assert "accepts less than the draft can" in low.stderr and "map" in low.stderr, low.stderr


def main():
    if not os.path.exists(SERVER) or not os.path.exists(MODEL):
        print(f"no llama-server at {SERVER}: scripts/setup --llama-server makes it")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="eaglet-llama-server-") as place:
        with LlamaServer(place) as server:
            start = time.monotonic()
            generate(place, server)
            print(f"generate: {time.monotonic() - start:.1f} s")
        start = time.monotonic()
        evaluate(place)
        print(f"evaluate: {time.monotonic() - start:.1f} s")


main()
