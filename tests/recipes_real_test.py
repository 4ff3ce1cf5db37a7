"""The recipes for real cases (recipes/kimi-k2.5.toml, llama-3.1-8b.toml, qwen3-8b-sglang.toml): planned without any model,
server or hardware, and run to the end with widths shrunk: a toy target, and a scripted server of the recipe's kind that
answers with the toy target's tokens."""
import json
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import scripted_states
import toy_target
from scripted_server import Answer, Server, chat_reply

EAGLET, SOURCE = os.environ["EAGLET"], os.environ["EAGLET_SOURCE"]
ROWS = 12
RECIPES = {"kimi-k2.5": "vllm", "llama-3.1-8b": "vllm", "qwen3-8b-sglang": "sglang"}


def eaglet(*arguments, code=0):
    result = subprocess.run([EAGLET, *arguments, "--progress", "plain"], capture_output=True, text=True, timeout=600)
    assert result.returncode == code, f"exit {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result


def planned(name):
    plan = json.loads(eaglet("run", f"{SOURCE}/recipes/{name}.toml", "--plan", "--json").stdout)
    stages = {stage["stage"]: stage for stage in plan["stages"]}
    assert {"generate", "extract", "train", "evaluate", "export"} <= set(stages)
    for stage in ("generate", "extract", "train", "evaluate"):
        assert stages[stage]["flops"] > 0 and stages[stage]["hours"] > 0, stages[stage]
    text = eaglet("run", f"{SOURCE}/recipes/{name}.toml", "--plan").stdout
    assert "hours" in text and "needs a server" in text, text
    return stages


def check_plans():
    kimi = planned("kimi-k2.5")
    assert kimi["generate"]["requests"] == 37312
    # The published run's 1.1909 B of 2.5947 B: matrices 1,190,920,192 and four norms of 7168; embedding and head rows besides.
    assert kimi["train"]["trainable_params"] == 1190920192 + 4 * 7168, kimi["train"]
    assert kimi["train"]["total_params"] == 2594701312 + 4 * 7168, kimi["train"]
    assert kimi["extract"]["bytes_per_token"] == 57344 and 4.5e12 < kimi["extract"]["bytes"] < 4.7e12, kimi["extract"]
    assert kimi["extract"]["requests"] == 37312 and any("/shared/hidden-states" in n for n in kimi["extract"]["needs"]), kimi
    assert any("4 ranks" in need for need in kimi["train"]["needs"]), kimi["train"]
    first = json.loads(eaglet("run", f"{SOURCE}/recipes/kimi-k2.5.toml", "--plan", "--json", "--set",
                              "generate.max_prompts=10000").stdout)
    assert first["stages"][0]["requests"] == 10000
    planned("llama-3.1-8b"), planned("qwen3-8b-sglang")
    small = eaglet("run", f"{SOURCE}/recipes/kimi-k2.5.toml", "--plan", "--set", "plan.free_terabytes=1.0").stdout
    assert "do not fit" in small, small
    unknown = eaglet("run", f"{SOURCE}/recipes/kimi-k2.5.toml", "--plan", "--set", "plan.hidden_size=0", code=78).stderr
    assert "hidden_size" in unknown, unknown
    assert not os.path.exists("runs"), "a plan wrote something"


class ToyServer:
    """Answers in the toy target's tokens: a walk along its words that depends on the prompt. Thinks on chats."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def ids(self, salt):
        word, ids = salt % 61, []
        for _ in range(20 + salt % 9):
            word = (word * 3 + 7) % 61
            ids.append(259 + word)
        return ids + [2]

    def __call__(self, route, request):
        if route == "/v1/chat/completions":
            salt = sum(request["messages"][-1]["content"].encode())
            prompt = [1] + [259 + (salt + i) % 61 for i in range(6)]
            message = {"content": f"answer {salt}", "reasoning": "hm"}
            return Answer(chat_reply(message, prompt_ids=prompt, token_ids=self.ids(salt)))
        assert route == "/generate", route
        return Answer({"text": "<think>hm</think>ok", "output_ids": self.ids(sum(request["input_ids"])),
                       "meta_info": {"finish_reason": {"type": "stop", "matched": 2}}})


def write_prompts(path, kind):
    with open(path, "w") as file:
        for i in range(ROWS):
            row = {"id": f"p{i}", "messages": [{"role": "user", "content": f"question {i}"}]}
            if kind == "sglang":  # the toy target has no chat template: prompts as ids
                row = {"id": f"p{i}", "prompt_ids": [1] + [259 + (7 * i + k) % 61 for k in range(6)]}
            file.write(json.dumps(row) + "\n")


def run_shrunk(place, name, kind):
    model, prompts = f"{place}/toy.gguf", f"{place}/{name}.prompts.jsonl"
    write_prompts(prompts, kind)
    output = f"{place}/{name}"
    shared = f"{place}/shared"
    os.makedirs(shared, exist_ok=True)
    connector = scripted_states.Connector(shared, 4, toy_target.HIDDEN, delay=0.01)
    with Server(ToyServer(1), owner=kind) as server, Server(connector, owner="vllm") as states:
        sets = {"model.path": model, "run.prompts": prompts, "generate.server": server.url, "generate.max_tokens": 40,
                "extract.target_layer_ids": "[2, 4, 5]", "extract.max_seq_len": 64, "train.max_seq_len": 128,
                "train.draft_vocab_size": 80, "train.intermediate_size": 96, "train.hold_out_every": 6,
                "run.drop_states": "false", "export.verifier": f"{place}/hf", "serve.max_prompts": 2}
        if name == "kimi-k2.5":  # warm start from a draft of the same shape
            sets.update({"extract.server": states.url, "extract.states_dir": shared})
            sets.update({"run.gpus": 0, "run.ranks": 2})  # it trains on four GPUs
            sets["train.from"] = f"{place}/qwen3-8b-sglang/draft/checkpoints/latest"
        arguments = [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]
        command = ("run", f"{SOURCE}/recipes/{name}.toml", "--output-dir", output, *arguments)
        first = eaglet(*command)
        assert "[1/" in first.stderr and server.requests, first.stderr
        if name == "kimi-k2.5":  # its states came through the connector, whose files are gone
            assert len(connector.asked) == ROWS and os.listdir(shared) == [], (len(connector.asked), os.listdir(shared))
        asked = len(server.requests)
        again = eaglet(*command)
        assert "done earlier, kept" in again.stderr and len(server.requests) == asked, "a finished run asked again"
    with open(f"{output}/report.json") as file:
        report = json.load(file)
    with open(f"{output}/stages/train.json") as file:
        assert json.load(file)["result"]["ranks"] == (2 if name == "kimi-k2.5" else 1)
    with open(f"{output}/conversations.jsonl") as file:
        rows = [json.loads(line) for line in file]
    assert len(rows) == ROWS and all(row["input_ids"][-1] == 2 for row in rows)
    assert os.path.exists(f"{output}/export/speculators/config.json"), os.listdir(output)
    assert report["held_out_acceptance_length"] >= 1.0, report
    print(f"{name}: to the end, held-out acceptance length {report['held_out_acceptance_length']:.3f}")


def main():
    check_plans()
    with tempfile.TemporaryDirectory(prefix="eaglet-recipes-") as place:
        toy_target.write_target(f"{place}/toy.gguf")
        os.mkdir(f"{place}/hf")
        with open(f"{place}/hf/config.json", "w") as file:
            json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": toy_target.HIDDEN,
                       "num_hidden_layers": toy_target.LAYERS, "vocab_size": toy_target.VOCAB}, file)
        for name in ("qwen3-8b-sglang", "llama-3.1-8b", "kimi-k2.5"):
            run_shrunk(place, name, RECIPES[name])


main()
