"""The sample model's answers, by eaglet generate, against those that llama-server gave to the same prompts.

Prompt token ids (chat template, tokeniser) must be the same; greedy answers of the stored weights too, up to the first
tie within rounding, which a batch of another size may decide the other way."""
import json
import os
import subprocess
import sys
import tempfile

EAGLET, SOURCE, MODEL = os.environ["EAGLET"], os.environ["EAGLET_SOURCE"], os.environ.get("EAGLET_MODEL", "")
PROMPTS, TOKENS = 6, 24


def read_rows(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def main():
    if not os.path.exists(MODEL):
        print(f"skipped: the sample model is not at {MODEL!r}")
        sys.exit(77)
    recorded = {row["id"]: row for row in read_rows(f"{SOURCE}/recipes/learning-check-conversations.jsonl")}
    with tempfile.TemporaryDirectory(prefix="eaglet-sample-") as root:
        result = subprocess.run(
            [EAGLET, "generate", "--model", MODEL, "--prompts", f"{SOURCE}/recipes/sample-prompts.jsonl", "--output",
             f"{root}/c.jsonl", "--max-prompts", str(PROMPTS), "--max-tokens", str(TOKENS), "--weights", "stored", "--json"],
            capture_output=True, text=True, timeout=900)
        assert result.returncode == 0, result.stderr
        report = json.loads(result.stdout)
        assert report["answered"] == PROMPTS and report["tokens_per_second"] > 0, report
        rows = read_rows(f"{root}/c.jsonl")
    same = total = 0
    for row in rows:
        start, reference = row["loss_mask"].index(1), recorded[row["id"]]
        assert row["input_ids"][:start] == reference["prompt_ids"], row["id"]
        assert row["loss_mask"] == [0] * start + [1] * (len(row["input_ids"]) - start), row["id"]
        answer = row["input_ids"][start:]
        assert row["finish_reason"] == ("stop" if len(answer) < TOKENS or answer[-1] == 2 else "length"), row["id"]
        assert row["messages"][-1] == {"role": "assistant", "content": row["text"]}, row["id"]
        total += len(answer)
        for ours, theirs in zip(answer, reference["response_ids"]):
            if ours != theirs:
                break
            same += 1
    print(f"{same} of {total} answer tokens are llama-server's")
    assert same >= 0.7 * total, f"only {same} of {total} tokens agree"


main()
