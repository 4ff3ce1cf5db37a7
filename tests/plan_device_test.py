"""eaglet plan device: a table and JSON for people and machines; both spellings; a draft's own config; what cannot be is refused by name."""
import json
import os
import subprocess
import tempfile

EAGLET, SOURCE = os.environ["EAGLET"], os.environ["EAGLET_SOURCE"]


def run(*arguments):
    return subprocess.run([EAGLET, "plan", *map(str, arguments)], capture_output=True, text=True, timeout=120)


def must(*arguments):
    result = run(*arguments)
    assert result.returncode == 0, f"{arguments}: exit {result.returncode}\n{result.stderr}"
    return result.stdout


def refused(code, text, *arguments):
    result = run(*arguments)
    assert result.returncode == code and text in result.stderr and "do:" in result.stderr, f"{arguments}: {result.returncode}\n{result.stderr}"


def main():
    everything = json.loads(must("--device", "a100,h100,h200,b200,rtx-pro-6000,4090", "--json"))
    plans = {(p["device"], p["ranks"]): p for p in everything["plans"]}
    assert everything["schema"] == 1 and len(plans) == 24, plans.keys()
    assert round(everything["trainable_params"] / 1e9, 4) == 1.1909 and round(everything["total_params"] / 1e9, 4) == 2.5947
    for (device, ranks), p in plans.items():
        assert 0 < p["mfu_ratio"] < 1 and p["fits"] == (device != "4090"), p
        assert abs(p["tokens_per_second"] - ranks * 8192 / p["step_seconds"]) < 1e-6 * p["tokens_per_second"]
        assert abs(sum(op["seconds"] for op in p["ops"]) + p["reduce_exposed_seconds"] - p["step_seconds"]) < 1e-9
    assert plans["h200", 1]["tokens_per_second"] > plans["h100", 1]["tokens_per_second"] > plans["a100", 1]["tokens_per_second"]
    text = must("device", "h200,4090", "--ranks", "1,4", "--by-op")
    assert "does not fit" in text and "AdamW" in text and "assumed" in text and "not a run" in text, text
    draft = f"{SOURCE}/testdata/draft/names/a_midlayer"
    own = json.loads(must("device", "h100", "--draft", draft, "--ranks", 1, "--json", "--max-seq-len", 1024))
    assert own["max_seq_len"] == 1024 and own["total_params"] < 1e6, own
    half = json.loads(must("device", "h100", "--supervised-share", "0.5", "--ranks", 1, "--json"))["plans"][0]
    assert half["needed_tflop"] < 0.75 * plans["h100", 1]["needed_tflop"], half
    with tempfile.TemporaryDirectory() as root:
        with open(f"{root}/h100.json", "w") as file:
            json.dump({"device": "h100", "gemm_tflops": 600, "bandwidth_share": 0.8}, file)
        measured = json.loads(must("device", "h100", "--ranks", 1, "--calibration", f"{root}/h100.json", "--json"))["plans"][0]
        assert measured["gemm_tflops"] == 600 and measured["origin"].startswith("measured") and measured["step_seconds"] > plans["h100", 1]["step_seconds"]
        refused(78, "h100", "device", "h200", "--calibration", f"{root}/h100.json")
    longer = json.loads(must("--device", "h100", "--max-seq-len", 16384, "--json"))
    assert longer["max_seq_len"] == 16384 and longer["plans"][0]["needed_tflop"] > 1.9 * plans["h100", 1]["needed_tflop"], longer
    refused(64, "--samples", "--device", "h100", "--samples", 3)
    refused(64, "h300", "device", "h300")
    refused(64, "NVLink", "device", "4090", "--link", "nvlink")
    refused(64, "shape", "device", "h100", "--shape", "huge")
    refused(64, "--ttt-steps", "device", "h100", "--ttt-steps", 0)
    refused(64, "--document-tokens", "device", "h100", "--document-tokens", 0)
    refused(64, "--ranks", "device", "h100", "--ranks", 0)
    refused(66, "config.json", "device", "h100", "--draft", "nowhere")
    print("ok")


if __name__ == "__main__":
    main()
