"""A toy draft from prompts to llama.cpp: trained on the toy target's own greedy answers, exported, served. The text with the
draft must be the plain text, and what was accepted must be what the walk over the stored states says. Then the bad input
of import, export and evaluate."""
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import toy_target

EAGLET, TESTDATA = os.environ["EAGLET"], os.path.join(os.environ["EAGLET_SOURCE"], "testdata", "draft")
# Threads that sleep at a barrier: on a machine with other work, spinning ones wait for each other.
ENVIRONMENT = dict(os.environ, OMP_WAIT_POLICY="passive")


def run(*arguments):
    return subprocess.run([EAGLET, *map(str, arguments)], capture_output=True, text=True, timeout=600, env=ENVIRONMENT)


def must(*arguments):
    result = run(*arguments)
    assert result.returncode == 0, f"{arguments}: exit {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
    return result.stdout


def refused(code, text, *arguments):
    result = run(*arguments)
    assert result.returncode == code, f"{arguments}: exit {result.returncode}, not {code}\n{result.stderr}"
    assert text in result.stderr and "do:" in result.stderr, f"{arguments}: {result.stderr}"


def write_prompts(path, count=16):
    rng = random.Random(5)
    with open(path, "w") as file:
        for i in range(count):
            ids = [1] + [rng.randrange(259, toy_target.VOCAB) for _ in range(rng.randrange(4, 12))]
            file.write(json.dumps({"id": f"q{i:02d}", "prompt_ids": ids}) + "\n")


def last_checkpoint(root):
    folder = f"{root}/draft/checkpoints"
    return os.path.join(folder, sorted(d for d in os.listdir(folder) if d.startswith("step-"))[-1])


def prepare(root):
    toy_target.write_target(f"{root}/toy.gguf")
    write_prompts(f"{root}/prompts.jsonl")
    # libllama's answers: random numbers have near ties, and what is walked must be the text that llama.cpp serves.
    must("generate", "--model", f"{root}/toy.gguf", "--prompts", f"{root}/prompts.jsonl", "--output", f"{root}/answers.jsonl",
         "--max-tokens", 60, "--threads", 1, "--engine", "llama")
    must("extract", "--model", f"{root}/toy.gguf", "--conversations", f"{root}/answers.jsonl", "--output-dir", f"{root}/states",
         "--threads", 1)
    must("train", "--store", f"{root}/states", "--model", f"{root}/toy.gguf", "--output-dir", f"{root}/draft", "--max-seq-len", 256,
         "--max-steps", 150, "--draft-vocab-size", 200, "--hold-out-every", 0, "--lr", "3e-3", "--threads", 1)
    return last_checkpoint(root)


def serve_and_compare(root, draft):
    report = json.loads(must("evaluate", "--draft", draft, "--model", f"{root}/toy.gguf", "--store", f"{root}/states",
                             "--hold-out-every", 0, "--ttt-steps", 4, "--serve", "--conversations", f"{root}/answers.jsonl", "--serve-type", "as-is",
                             "--draft-type", "f32", "--draft-lengths", "1,2,4", "--max-prompts", 0, "--work-dir", f"{root}/work",
                             "--threads", 1, "--json"))
    served = report["served"]
    assert report["schema"] == 1 and served["prompts"] == 16 and served["identical"], served["differences"]
    assert [length["draft_length"] for length in served["lengths"]] == [1, 2, 4]
    walked = {w["draft_length"]: w for w in report["held_out"]["walked"]}  # all documents are held out here, so the same ones
    for length in served["lengths"]:
        assert length["tokens"] == served["plain_tokens"], "same text, same number of tokens"
        assert length["passes"] == length["tokens"] - served["prompts"] - length["accepted"], length
        assert sum(length["accepted_at"]) == length["accepted"] and len(length["accepted_at"]) == length["draft_length"]
        # A server never drafts the last token it may write, the walk counts it: at most one token a prompt. Three for rounding.
        more = walked[length["draft_length"]]["accepted"] - length["accepted"]
        assert -3 <= more <= served["prompts"] + 3, (length, walked)
    lengths = [length["acceptance_length"] for length in served["lengths"]]
    print("served, draft lengths 1, 2, 4:", lengths, "against the walk:",
          [c["served_over_walked_minus_one"] for c in report["served_against_walked"]])
    assert lengths[0] > 1.2, "a draft trained on these very answers must have some right, or nothing was tested"
    assert lengths == sorted(lengths)
    assert os.listdir(f"{root}/work") == [], "the draft's GGUF is a temporary file"


def answers_of(path):
    with open(path) as file:
        return {row["id"]: row["input_ids"] for row in map(json.loads, file)}


def in_our_own_engine(root, draft):
    """The same draft where many prompts are answered at once: same text, and accepted as often as the walk over these answers says."""
    model, exact = f"{root}/toy.gguf", ("--engine", "native", "--compute-type", "f32", "--threads", 2)
    generate = ("generate", "--model", model, "--prompts", f"{root}/prompts.jsonl", "--max-tokens", 60, *exact)
    must(*generate, "--output", f"{root}/own.jsonl", "--keep-states", f"{root}/own-states")
    drafted = json.loads(must(*generate, "--output", f"{root}/drafted.jsonl", "--draft", draft, "--draft-length", 4, "--keep-states",
                              f"{root}/drafted-states", "--parallel", 5, "--json"))
    assert answers_of(f"{root}/drafted.jsonl") == answers_of(f"{root}/own.jsonl")
    counts, tokens = drafted["draft"], drafted["response_tokens"]
    # A pass whose accepted token ends the answer gives no token of its own.
    assert 0 <= counts["passes"] + counts["accepted"] - (tokens - 16) <= 16 and counts["accepted"] == sum(counts["accepted_at"]), counts
    assert counts["acceptance_length"] > 1.1 and counts["drafted"] > counts["accepted"], counts
    report = json.loads(must("evaluate", "--draft", draft, "--model", model, "--store", f"{root}/drafted-states", "--hold-out-every", 0,
                             "--ttt-steps", 16, "--serve", "native", "--conversations", f"{root}/own.jsonl", "--draft-lengths", "1,4,16", "--max-prompts", 0,
                             "--compute-type", "f32", "--parallel", 7, "--threads", 2, "--json"))
    served = report["served"]
    assert served["engine"] == "our own engine" and served["at_once"] == 7 and served["prompts"] == 16 and served["identical"], served
    walked = {w["draft_length"]: w for w in report["held_out"]["walked"]}
    for length in served["lengths"]:
        assert length["tokens"] == served["plain_tokens"] == tokens
        more = walked[length["draft_length"]]["accepted"] - length["accepted"]
        assert -3 <= more <= 16 + 3, (length, walked)  # as in serve_and_compare()
    for what in ("accepted", "passes"):  # there an answer may not be longer than the recorded one
        assert abs(served["lengths"][1][what] - counts[what]) <= 16, (served, counts)
    sampled = json.loads(must("evaluate", "--draft", draft, "--model", model, "--serve", "native", "--conversations", f"{root}/own.jsonl",
                              "--draft-lengths", "2", "--max-prompts", 0, "--temperature", "0.7", "--hold-out-every", 1, "--json"))
    assert sampled["served"]["temperature"] == 0.7 and sampled["served"]["lengths"][0]["accepted"] > 0, sampled
    other = os.path.join(TESTDATA, "names", "a_midlayer")
    more = (*generate[:5], "--output", f"{root}/x.jsonl")
    refused(78, "width", *more, "--draft", other)
    refused(66, "config.json", *more, "--draft", f"{root}/none")
    early = run(*more, "--draft", f"{root}/none", "--progress", "plain")
    assert "load:" not in early.stderr, "the target was read before the draft was looked at: " + early.stderr
    refused(64, "--draft-length", *more, "--draft-length", 2)
    refused(64, "--draft-length", *more, "--draft", draft, "--draft-length", 0)
    refused(64, "--draft", *more, "--draft", draft, "--engine", "llama")
    refused(64, "--draft", "generate", "--server", "http://127.0.0.1:1", *more[3:], "--draft", draft)
    serve = ("evaluate", "--model", model, "--conversations", f"{root}/own.jsonl")
    refused(64, "'vulkan'", *serve, "--draft", draft, "--serve", "vulkan")
    refused(64, "checkpoint", *serve, "--draft", f"{root}/draft.gguf", "--serve", "native")
    refused(64, "--parallel", *serve, "--draft", draft, "--serve", "--parallel", 3)
    refused(64, "--serve-type", *serve, "--draft", draft, "--serve", "native", "--serve-type", "f16")


def human_output(root, draft):
    gguf = f"{root}/draft.gguf"
    assert "llama-server" in must("export", "--draft", draft, "--model", f"{root}/toy.gguf", "--output", gguf)
    text = must("evaluate", "--draft", gguf, "--model", f"{root}/toy.gguf", "--serve", "--serve-type", "as-is", "--conversations",
                f"{root}/answers.jsonl", "--ids", "q03,q05", "--draft-lengths", "2", "--threads", 1)
    assert "2 prompts" in text and "tokens/pass" in text and "plain greedy decoding" in text, text
    listing = must("import", draft, "--model", f"{root}/toy.gguf", "--output-dir", f"{root}/again")
    assert listing.count("  loaded ") == 13 and "optimizer" not in listing, listing


def killed_while_measuring(root, draft):
    """The GGUF that is made for the measurement is gone from the folder as soon as it is loaded."""
    work, many = f"{root}/killed", f"{root}/many.jsonl"
    os.makedirs(work)
    with open(f"{root}/answers.jsonl") as answers, open(many, "w") as file:
        rows = [json.loads(line) for line in answers]
        for copy in range(40):  # some ten seconds of measuring
            for row in rows:
                file.write(json.dumps({**row, "id": f"{row['id']}-{copy}"}) + "\n")
    process = subprocess.Popen([EAGLET, "evaluate", "--draft", draft, "--model", f"{root}/toy.gguf", "--serve", "--serve-type", "as-is",
                                "--conversations", many, "--draft-lengths", "1,2,3,4,5,6,7,8", "--max-prompts", "0", "--work-dir", work,
                                "--threads", "1", "--progress", "plain"], env=ENVIRONMENT, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    said = []
    for line in process.stderr:
        said.append(line)
        if "draft written" in line:
            break
    until = time.time() + 60
    while os.listdir(work) and process.poll() is None and time.time() < until:
        time.sleep(0.01)
    time.sleep(0.3)  # all that is behind the measurement takes less
    assert process.poll() is None, f"the draft lay there until the end: {said}"
    process.kill()
    process.communicate()
    assert os.listdir(work) == [], os.listdir(work)


def bad_input(root, draft):
    model, rows = f"{root}/toy.gguf", f"{root}/answers.jsonl"
    serve = ("--model", model, "--serve", "--serve-type", "as-is", "--conversations", rows)
    refused(64, "nothing to do", "evaluate", "--draft", draft, "--model", model)
    refused(64, "--conversations", "evaluate", "--draft", draft, "--model", model, "--serve")
    refused(66, "q99", "evaluate", "--draft", draft, *serve, "--ids", "q99")
    refused(64, "draft length of 0", "evaluate", "--draft", draft, *serve, "--draft-lengths", "0")
    refused(78, "not an eagle3 draft", "evaluate", "--draft", model, *serve)
    other = os.path.join(TESTDATA, "names", "a_midlayer")  # a draft of another target
    refused(78, "width", "export", "--draft", other, "--model", model, "--output", f"{root}/x.gguf")
    refused(78, "width", "import", other, "--model", model, "--output-dir", f"{root}/x")
    refused(65, "v_proj", "import", os.path.join(TESTDATA, "names", "f_one_missing"), "--output-dir", f"{root}/x")
    refused(64, "target's own file", "export", "--draft", draft, "--model", model, "--output", f"{root}/../{os.path.basename(root)}/toy.gguf")
    refused(64, "folder that is read", "import", draft, "--output-dir", f"{draft}/.")
    refused(66, "config.json", "export", "--draft", f"{root}/none", "--model", model, "--output", f"{root}/x.gguf")
    refused(64, "--verifier", "export", "--draft", draft, "--model", model, "--format", "speculators", "--output", f"{root}/x")
    refused(66, "config.json", "export", "--draft", draft, "--model", model, "--format", "speculators", "--verifier", root, "--output",
            f"{root}/x")
    assert not os.path.exists(f"{root}/x.gguf") and not os.path.exists(f"{root}/x/model.safetensors")


def speculators_layout(root, draft):
    os.makedirs(f"{root}/verifier")
    with open(f"{root}/verifier/config.json", "w") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "hidden_size": toy_target.HIDDEN, "vocab_size": toy_target.VOCAB}, file)
    out = f"{root}/speculators"
    must("export", "--draft", draft, "--model", f"{root}/toy.gguf", "--format", "speculators", "--verifier", f"{root}/verifier",
         "--output", out)
    with open(f"{out}/config.json") as file:
        config = json.load(file)
    assert config["speculators_config"]["verifier"] == {"name_or_path": f"{root}/verifier", "architectures": ["LlamaForCausalLM"]}
    with open(f"{out}/model.safetensors", "rb") as file:
        tensors = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    assert tensors["embed_tokens.weight"]["shape"] == [toy_target.VOCAB, toy_target.HIDDEN]
    assert tensors["d2t"]["dtype"] == "I64" and tensors["t2d"]["dtype"] == "BOOL"


if __name__ == "__main__":
    directory = tempfile.mkdtemp()
    try:
        checkpoint = prepare(directory)
        serve_and_compare(directory, checkpoint)
        human_output(directory, checkpoint)
        in_our_own_engine(directory, checkpoint)
        speculators_layout(directory, checkpoint)
        killed_while_measuring(directory, checkpoint)
        bad_input(directory, checkpoint)
    finally:
        shutil.rmtree(directory)
