"""Does vLLM 0.32 accept our exported drafts as often as our walk says? tests/optional/vllm_peer.sh installs it and calls this.

    vllm_peer.py VLLM EAGLET SAMPLE.gguf PROMPTS.jsonl WORK_FOLDER

1. The sample model as a transformers folder (dequantised by the transformers library, bf16), served by vLLM on the CPU.
2. `eaglet generate --server`: vLLM's own greedy answers to 100 prompts, as its token ids; its routes /tokenize and /detokenize say the
   same of them, and prompts given as ids are answered the same way.
3. States of exactly these ids; a draft trained on them.
4. The draft in both layouts that vLLM reads (`--to speculators`, `--to sglang`), each served by vLLM; `eaglet evaluate --server` asks the
   same prompts again and holds vLLM's counters, by position, against the walk. At most 3 points apart in each.
EAGLET_PEER_PROMPTS and EAGLET_PEER_TOKENS change the 100 prompts and the 64 tokens of an answer. What is finished in the work folder is
not made again.
"""
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

PORT, DRAFTED, POINTS = 8317, 3, 0.03
PROMPTS, ANSWER_TOKENS = (int(os.environ.get(f"EAGLET_PEER_{name}", default)) for name, default in (("PROMPTS", 100), ("TOKENS", 64)))
URL = f"http://127.0.0.1:{PORT}"


class Vllm:
    """A server that is up inside the `with`."""

    def __init__(self, program, model, log, draft=None):
        self.command = [program, "serve", model, "--port", str(PORT), "--max-model-len", "2048", "--enforce-eager", "--dtype", "bfloat16",
                        "--served-model-name", "sample", "--max-num-seqs", "16"]
        if draft:
            self.command += ["--speculative-config", json.dumps({"method": "eagle3", "model": draft, "num_speculative_tokens": DRAFTED})]
        self.environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1"}
        self.log = log

    def __enter__(self):
        start = time.monotonic()
        self.process = subprocess.Popen(self.command, stdout=open(self.log, "w"), stderr=subprocess.STDOUT, env=self.environment,
                                        start_new_session=True)
        while time.monotonic() - start < 1200:
            assert self.process.poll() is None, f"vLLM ended, see {self.log}"
            try:
                urllib.request.urlopen(URL + "/health", timeout=5)
                print(f"vLLM is up after {time.monotonic() - start:.0f} s")
                return self
            except (urllib.error.URLError, OSError):
                time.sleep(1)
        raise AssertionError(f"vLLM did not come up, see {self.log}")

    def __exit__(self, *_):
        os.killpg(self.process.pid, signal.SIGTERM)  # its engine is a process of its own
        self.process.wait()


def make_target(gguf, folder):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place, name = os.path.dirname(os.path.abspath(gguf)), os.path.basename(gguf)
    model = AutoModelForCausalLM.from_pretrained(place, gguf_file=name, dtype=torch.float32)
    if hasattr(model.config, "quantization_config"):  # says GGUF, though the weights are plain by now; refuses to be saved so
        del model.config.quantization_config
    plain = AutoModelForCausalLM.from_config(model.config, dtype=torch.bfloat16)
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(place, gguf_file=name).save_pretrained(folder)


def post(route, body):
    request = urllib.request.Request(URL + route, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as reply:
        return json.load(reply)


def check_ids(eaglet, answers, work):
    """The rows' ids are those that vLLM's own routes give for their messages and texts."""
    with open(answers) as file:
        rows = [json.loads(line) for line in file]
    for row in rows:
        start = row["loss_mask"].index(1)
        question = [message for message in row["messages"] if message["role"] != "assistant"]
        prompt = post("/tokenize", {"model": "sample", "messages": question, "add_generation_prompt": True})["tokens"]
        assert prompt == row["input_ids"][:start], row["id"]
        said = post("/detokenize", {"model": "sample", "tokens": row["input_ids"][start:]})["prompt"].replace("<|im_end|>", "")
        assert said.strip() == row["text"].strip(), (said, row["text"])
    print(f"{len(rows)} rows: prompt ids are those of /tokenize, answer ids give the text back by /detokenize")
    few = rows[:8]
    with open(f"{work}/ids.jsonl", "w") as file:
        for row in few:
            file.write(json.dumps({"id": row["id"], "prompt_ids": row["input_ids"][:row["loss_mask"].index(1)]}) + "\n")
    eaglet("generate", "--server", URL, "--prompts", f"{work}/ids.jsonl", "--output", f"{work}/by-ids.jsonl", "--max-tokens",
           str(ANSWER_TOKENS))
    with open(f"{work}/by-ids.jsonl") as file:
        again = {row["id"]: row["input_ids"] for row in map(json.loads, file)}
    same = sum(again[row["id"]] == row["input_ids"] for row in few)
    print(f"{same} of {len(few)} prompts given as ids have the same answer again (bf16, other batches: not all need to)")
    assert same >= len(few) // 2


def main(vllm, program, gguf, prompts, work):
    def eaglet(*arguments, codes=(0,)):
        done = subprocess.run([program, *arguments, "--progress", "plain"], capture_output=True, text=True)
        assert done.returncode in codes, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    target, answers, states, draft = (f"{work}/{name}" for name in ("target", "answers.jsonl", "states", "draft"))
    if not os.path.exists(f"{target}/tokenizer_config.json"):
        make_target(gguf, target)
    if not os.path.exists(f"{work}/answered"):
        with Vllm(vllm, target, f"{work}/vllm-plain.log"):
            report = json.loads(eaglet("generate", "--server", URL, "--prompts", prompts, "--max-prompts", str(PROMPTS), "--output", answers,
                                       "--max-tokens", str(ANSWER_TOKENS), "--concurrency", "16", "--json"))
            print(f"vLLM answered: {report}")
            assert report["answered"] + report["already_done"] == PROMPTS and report["served"]["tokenised_here"] == 0, report
            check_ids(eaglet, answers, work)
        open(f"{work}/answered", "w").close()
    eaglet("extract", "--model", gguf, "--conversations", answers, "--output-dir", states)
    if not os.path.exists(f"{draft}/checkpoints/latest"):
        eaglet("train", "--model", gguf, "--store", states, "--output-dir", draft, "--epochs", "12", "--max-seq-len", "2048",
               "--draft-vocab-size", "4096", "--lr", "1e-3", "--hold-out-every", "0")
    checkpoint = os.path.realpath(f"{draft}/checkpoints/latest")
    worst = 0.0
    for layout, more in (("speculators", ["--model", gguf, "--verifier", target]), ("sglang", ["--dtype", "bf16"])):
        exported = f"{work}/draft-{layout}"
        eaglet("export", "--draft", checkpoint, "--to", layout, "--output", exported, *more)
        with Vllm(vllm, target, f"{work}/vllm-{layout}.log", exported):
            result = json.loads(eaglet("evaluate", "--draft", checkpoint, "--model", gguf, "--store", states, "--conversations", answers,
                                       "--hold-out-every", "1", "--max-prompts", "0", "--ttt-steps", str(DRAFTED), "--server", URL, "--json",
                                       codes=(0, 1)))
        served, walked = result["server"], result["server_against_walked"]["walk"]
        print(f"{layout}: served {served['acceptance_length']:.3f}, walked {walked['acceptance_length']:.3f} tokens per pass; "
              f"{served['same_share']:.3f} of the tokens as recorded{', asked again' if served['asked_again'] else ''}; "
              f"{served['tokens']:.0f} tokens in {served['prompts']} answers; {served['source']}")
        for position in range(DRAFTED):
            theirs, ours = served["accepted_at"][position] / served["drafts"], walked["accepted_at"][position] / walked["drafts"]
            worst = max(worst, abs(theirs - ours))
            print(f"  position {position + 1}: vLLM {theirs:.3f}, walk {ours:.3f}")
    assert worst <= POINTS, f"{worst:.3f} apart"
    print("vLLM accepts both exports as often as our walk says")


if __name__ == "__main__":
    main(*sys.argv[1:])
