"""Bad input to eaglet generate and eaglet extract: each a clear error with what, where and what to do, a non-zero exit,
and nothing lost."""
import json
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import toy_target

EAGLET = os.environ["EAGLET"]


def eaglet(*arguments):
    return subprocess.run([EAGLET, *arguments, "--progress", "plain"], capture_output=True, text=True, timeout=120)


def must(result):
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result


def refused(result, code, *words):
    assert result.returncode == code, f"exit {result.returncode}, expected {code}\n{result.stderr}"
    assert "error:" in result.stderr and "do:" in result.stderr, result.stderr
    for word in words:
        assert word in result.stderr, f"{word!r} is not in\n{result.stderr}"


class Inputs:
    def __init__(self, root):
        self.root = root
        self.model, self.prompts, self.output = f"{root}/toy.gguf", f"{root}/prompts.jsonl", f"{root}/out/c.jsonl"
        toy_target.write_target(self.model)
        self.write_prompts([{"id": f"p{i}", "prompt_ids": [1, 260 + i, 270]} for i in range(6)])

    def write_prompts(self, prompts):
        with open(self.prompts, "w") as file:
            file.writelines(json.dumps(p) + "\n" for p in prompts)

    def generate(self, *more, model=None, prompts=None, output=None):
        return eaglet("generate", "--model", model or self.model, "--prompts", prompts or self.prompts, "--output",
                      output or self.output, "--max-tokens", "5", *more)

    def extract(self, *more, model=None, conversations=None, store=None):
        return eaglet("extract", "--model", model or self.model, "--conversations", conversations or self.output,
                      "--output-dir", store or f"{self.root}/states", *more)

    def file(self, name, content):
        with open(f"{self.root}/{name}", "wb") as file:
            file.write(content)
        return f"{self.root}/{name}"


def patched(model, key, kind, value):
    """The GGUF's bytes with the value of a key replaced (same length)."""
    with open(model, "rb") as file:
        data = bytearray(file.read())
    at = data.index(key.encode() + struct.pack("<I", kind)) + len(key) + 4
    data[at:at + len(value)] = value
    return bytes(data)


def check_models(inputs):
    refused(inputs.generate(model="/no/such.gguf"), 66, "/no/such.gguf")
    refused(inputs.generate(model=inputs.file("text.gguf", b"once upon a time")), 65, "not a GGUF")
    with open(inputs.model, "rb") as file:
        data = file.read()
    refused(inputs.generate(model=inputs.file("cut.gguf", data[:len(data) // 2])), 65, "cut short")
    spiral = patched(inputs.model, "general.architecture", 8, struct.pack("<Q", 5) + b"spira")
    refused(inputs.generate(model=inputs.file("spiral.gguf", spiral)), 78, "spira")
    assert not os.path.exists(inputs.output), "a refused run left answers"


def check_prompts(inputs):
    good = '{"id": "a", "prompt_ids": [1, 260]}\n'
    broken = inputs.file("broken.jsonl", (good + "not json\n" + '{"id": "b"}\n' + good.replace('"a"', '"c"')).encode())
    result = must(inputs.generate(prompts=broken, output=f"{inputs.root}/broken/c.jsonl"))
    assert "2 of the prompt lines" in result.stderr and "line 2" in result.stderr, result.stderr
    with open(f"{inputs.root}/broken/c.skipped.jsonl") as file:
        assert [json.loads(line)["line"] for line in file] == [2, 3]
    with open(f"{inputs.root}/broken/c.jsonl") as file:
        assert [json.loads(line)["id"] for line in file] == ["a", "c"]
    refused(inputs.generate(prompts=inputs.file("empty.jsonl", b"")), 65, "empty.jsonl")
    refused(inputs.generate(prompts="/no/such.jsonl"), 66, "/no/such.jsonl")
    long = inputs.file("long.jsonl", json.dumps({"id": "l", "prompt_ids": [1] * 600}).encode() + b"\n")
    refused(inputs.generate(prompts=long, output=f"{inputs.root}/long/c.jsonl"), 1, "no prompt could be asked")
    chat = inputs.file("chat.jsonl", b'{"id": "m", "messages": [{"role": "user", "content": "Hi"}]}\n')
    refused(inputs.generate(prompts=chat, output=f"{inputs.root}/chat/c.jsonl"), 78, "no chat template")


def check_answers(inputs):
    must(inputs.generate())
    with open(inputs.output) as file:
        before = file.read()
    refused(inputs.generate("--temperature", "0.5"), 78, "temperature")
    other = f"{inputs.root}/other.gguf"
    toy_target.write_target(other, seed=9)
    refused(inputs.generate(model=other), 78, "target_identity")
    with open(inputs.output) as file:
        assert file.read() == before, "a refused run changed the answers"
    unwritable = inputs.generate(output=f"{inputs.prompts}/c.jsonl")  # below a file, so even root cannot write there
    refused(unwritable, unwritable.returncode or 1, inputs.prompts)
    first = json.loads(before.splitlines()[0])
    answer = first["input_ids"][first["loss_mask"].index(1)]
    silent = inputs.file("silent.gguf", patched(inputs.model, "tokenizer.ggml.eos_token_id", 4, struct.pack("<I", answer)))
    one = inputs.file("one.jsonl", json.dumps({"id": first["id"], "prompt_ids": first["input_ids"][:3]}).encode() + b"\n")
    refused(inputs.generate(model=silent, prompts=one, output=f"{inputs.root}/silent/c.jsonl"), 1, "all 1 answers are empty")


def check_busy(inputs):
    many = [{"id": f"p{i}", "prompt_ids": [1, 260 + i % 50]} for i in range(4000)]
    inputs.write_prompts(many)
    path = f"{inputs.root}/busy/c.jsonl"
    first = subprocess.Popen([EAGLET, "generate", "--model", inputs.model, "--prompts", inputs.prompts, "--output", path,
                              "--max-tokens", "100"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not (os.path.exists(path) and os.path.getsize(path) > 0) and first.poll() is None:
            pass
        assert first.poll() is None, "the first run was over too soon"
        refused(inputs.generate(output=path), 75, "another eaglet")
    finally:
        first.terminate()
        assert first.wait(60) == 143, first.returncode


def check_extract(inputs):
    must(inputs.extract())
    other = f"{inputs.root}/other.gguf"
    refused(inputs.extract(model=other), 78, "states")
    refused(inputs.extract("--target-layer-ids", "2,3"), 78)
    refused(inputs.extract("--target-layer-ids", "3,99", store=f"{inputs.root}/s2"), 64, "99")
    refused(inputs.extract("--max-seq-len", "1", store=f"{inputs.root}/s3"), 1, "supervised")
    refused(inputs.extract(conversations="/no/such.jsonl", store=f"{inputs.root}/s4"), 66, "/no/such.jsonl")
    foreign = inputs.file("foreign.jsonl", b'{"id": "f", "prompt_ids": [1, 2], "response_ids": [99999], "stop": "eos"}\n')
    refused(inputs.extract(conversations=foreign, store=f"{inputs.root}/s5"), 78, "99999", "another model")
    again = must(inputs.extract("--json"))
    assert json.loads(again.stdout)["already_done"] == 6, again.stdout


def main():
    with tempfile.TemporaryDirectory(prefix="eaglet-input-") as root:
        inputs = Inputs(root)
        check_models(inputs)
        check_prompts(inputs)
        check_answers(inputs)
        check_extract(inputs)
        check_busy(inputs)


main()
