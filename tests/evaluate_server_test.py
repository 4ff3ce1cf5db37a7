"""eaglet evaluate --server with a scripted vLLM: acceptance from its counters beside our walk, exit 1 with the causes when it is
too low; the sum of min(p, q); the draft length that pays best."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import toy_target
from scripted_server import Answer, Server

EAGLET = os.environ["EAGLET"]


def eaglet(*arguments, code=0):
    result = subprocess.run([EAGLET, *map(str, arguments), "--progress", "none"], capture_output=True, text=True, timeout=600)
    assert code is None or result.returncode == code, f"exit {result.returncode}, expected {code}\n{result.stdout}\n{result.stderr}"
    return result


class Counting:
    """Gives the recorded answers, other ones after `same` tokens, and counters as if `accepted_at` had been accepted by position in
    `drafts` passes."""

    def __init__(self, rows, drafts, accepted_at, same=10**9):
        self.answers = {}
        for row in rows:
            start = row["loss_mask"].index(1)
            answer = row["input_ids"][start:]
            self.answers[tuple(row["input_ids"][:start])] = answer[:same] + [token + 1 for token in answer[same:]]
        self.drafts, self.accepted_at, self.asked, self.longest = drafts, accepted_at, 0, 0

    def __call__(self, route, request):
        assert route == "/v1/completions" and request["temperature"] == 0, (route, request)
        self.asked += 1
        self.longest = max(self.longest, len(request["prompt"]) + request["max_tokens"])
        ids = self.answers[tuple(request["prompt"])][:request["max_tokens"]]
        return Answer({"choices": [{"text": "x", "finish_reason": "stop", "token_ids": ids}]})

    def metrics(self):
        share = 1 if self.asked else 0
        lines = [f'vllm:spec_decode_num_drafts_total{{engine="0"}} {100 + share * self.drafts}',
                 f'vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {200 + share * self.drafts * 2}',
                 f'vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {50 + share * sum(self.accepted_at)}']
        lines += [f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{i}"}} {20 + share * n}'
                  for i, n in enumerate(self.accepted_at)]
        return "\n".join(lines) + "\n"


def main():
    with tempfile.TemporaryDirectory(prefix="eaglet-evaluate-") as place:
        model, conversations = f"{place}/toy.gguf", f"{place}/c.jsonl"
        toy_target.write_target(model)
        with open(f"{place}/prompts.jsonl", "w") as file:
            for i in range(16):
                file.write(json.dumps({"id": f"p{i}", "prompt_ids": [1] + [259 + (7 * i + 5 * k) % 61 for k in range(6)]}) + "\n")
        eaglet("generate", "--model", model, "--prompts", f"{place}/prompts.jsonl", "--output", conversations, "--max-tokens", 60)
        eaglet("extract", "--model", model, "--conversations", conversations, "--output-dir", f"{place}/states")
        eaglet("train", "--store", f"{place}/states", "--model", model, "--output-dir", f"{place}/draft", "--max-seq-len", 256,
               "--draft-vocab-size", 200, "--max-steps", 120, "--lr", 3e-3, "--hold-out-every", 0, "--threads", 2)
        with open(conversations) as file:
            rows = [json.loads(line) for line in file]
        common = ("evaluate", "--draft", f"{place}/draft/checkpoints/latest", "--model", model, "--store", f"{place}/states",
                  "--hold-out-every", 2, "--conversations", conversations, "--max-prompts", 0, "--ttt-steps", 2, "--threads", 2)
        plain = json.loads(eaglet(*common, "--temperature", 1.0, "--draft-cost", 0.05, "--verify-cost", 0.01, "--json").stdout)
        walked = plain["held_out"]["walked"][1]
        overlaps = [depth["sum_min_p_q"] for depth in plain["held_out"]["depth"]]
        assert all(0 < overlap <= 1 for overlap in overlaps), overlaps
        gains = plain["draft_length_by_given_costs"]
        best = max(gains["lengths"], key=lambda gain: gain["speedup"])
        assert gains["best_draft_length"] == best["draft_length"], gains
        assert abs(best["pass_cost"] - (1 + best["draft_length"] * 0.06)) < 1e-9, best
        assert walked["accepted"] >= 30, "the draft is too weak to show anything"
        passes = walked["tokens"] - walked["accepted"]
        print(f"walked {walked['acceptance_length']:.3f}, accepted {walked['accepted']:.0f} at {walked['accepted_at']}")
        as_walked = Counting(rows, passes, walked["accepted_at"])
        with Server(as_walked, metrics=as_walked.metrics) as server:
            report = json.loads(eaglet(*common, "--server", server.url, "--json").stdout)
            served, verdict = report["server"], report["server_against_walked"]
            assert served["source"] == "metrics" and served["draft_length"] == 2 and served["prompts"] == 8, served
            assert served["accepted"] == sum(walked["accepted_at"]) and served["same_share"] == 1, served
            assert verdict["good"] and abs(verdict["ratio"] - 1) < 0.02, verdict
        # States of the first 27 tokens only: the server is asked for no more than the walk covers.
        eaglet("extract", "--model", model, "--conversations", conversations, "--output-dir", f"{place}/cut", "--max-seq-len", 27)
        cut = Counting(rows, 10, [1, 0])
        with Server(cut, metrics=cut.metrics) as server:
            shorter = [f"{place}/cut" if argument == f"{place}/states" else argument for argument in common]
            report = json.loads(eaglet(*shorter, "--server", server.url, "--json", code=None).stdout)
        lengths = [sum(row["loss_mask"]) for row in rows if row["id"] in report["held_out"]["document_ids"]]
        first_20 = sum(min(20, length) for length in lengths)  # tokens; some answers end before
        assert cut.longest == 27 and report["server"]["tokens"] == report["held_out"]["walked"][1]["tokens"] == first_20, report
        # Answers that leave the recorded ones after 20 tokens: asked again as far as that, and the walk goes no further.
        other = Counting(rows, 10, [1, 0], same=20)
        with Server(other, metrics=other.metrics) as server:
            report = json.loads(eaglet(*common, "--server", server.url, "--json", code=None).stdout)
        served, verdict = report["server"], report["server_against_walked"]
        assert served["asked_again"] and other.asked == 8 + served["prompts"] and abs(served["same_share"] - first_20 / sum(lengths)) < 1e-9, (served, lengths)
        assert served["tokens"] == verdict["walk"]["tokens"] == sum(20 for length in lengths if length >= 20), (served, verdict)
        strange = Counting(rows, 10, [1, 0], same=2)
        with Server(strange, metrics=strange.metrics) as server:
            refused = eaglet(*common, "--server", server.url, code=1)
            assert "writes other answers than the recorded ones" in refused.stderr, refused.stderr
        low = Counting(rows, walked["tokens"], [0, 0])
        with Server(low, metrics=low.metrics) as server:
            refused = eaglet(*common, "--server", server.url, code=1)
            assert "accepts less than the draft can" in refused.stderr and "d2t" in refused.stderr, refused.stderr
        with Server(low) as server:  # no counters at all
            silent = eaglet(*common, "--server", server.url, code=69)
            assert "tells nothing about drafted tokens" in silent.stderr, silent.stderr


main()
