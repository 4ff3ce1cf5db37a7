"""A real draft, trained elsewhere, taken in and served: import, export to GGUF, llama.cpp's speculative decoding.

Reads the folder named by EAGLET_GOLDEN_REAL (its draft/); skipped without it or without the sample model. llama.cpp's server gave
1.383 tokens per pass on these prompts (testdata/golden_real/README.md); ours must be within 3 % of it, with the plain text.
"""
import json
import os
import subprocess
import sys
import tempfile

EXPECTED_LENGTH, TOLERANCE = 1.383, 0.03
FOLDER, MODEL = os.environ.get("EAGLET_GOLDEN_REAL"), os.environ["EAGLET_MODEL"]
TESTDATA = os.path.join(os.environ["EAGLET_SOURCE"], "testdata", "golden_real")

if not FOLDER or not os.path.exists(MODEL):
    print("skipped: EAGLET_GOLDEN_REAL does not name the folder with the real draft, or the sample model is not there")
    sys.exit(77)


def eaglet(*arguments):
    # Threads that sleep at a barrier: on a machine with other work, spinning ones wait for each other for minutes.
    environment = dict(os.environ, OMP_WAIT_POLICY="passive")
    result = subprocess.run([os.environ["EAGLET"], *arguments, "--json"], capture_output=True, text=True, env=environment)
    if result.returncode != 0:
        sys.exit(f"eaglet {arguments[0]} failed ({result.returncode}):\n{result.stderr}{result.stdout}")
    return json.loads(result.stdout)


with tempfile.TemporaryDirectory() as directory:
    taken = eaglet("import", os.path.join(FOLDER, "draft"), "--model", MODEL, "--output-dir", f"{directory}/draft")
    assert len(taken["tensors"]["loaded"]) == 13 and not taken["tensors"]["filled"], taken
    assert taken["target_layer_ids"] == [2, 15, 27], taken
    eaglet("export", "--draft", f"{directory}/draft", "--model", MODEL, "--type", "q8_0", "--output", f"{directory}/draft.gguf")
    report = eaglet("evaluate", "--draft", f"{directory}/draft.gguf", "--model", MODEL, "--serve", "--serve-type", "f16",
                    "--conversations", f"{TESTDATA}/conversations.jsonl", "--hold-out-every", "1", "--max-prompts", "0",
                    "--draft-lengths", "2", "--work-dir", directory)["served"]
    length = report["lengths"][0]
    got = length["tokens"] / (length["tokens"] - length["accepted"])
    print(f"{report['prompts']} prompts, {length['tokens']:.0f} tokens: {got:.4f} tokens per pass, expected {EXPECTED_LENGTH}; "
          f"{report['plain_tokens_per_second']:.1f} tokens/s without the draft, {length['tokens_per_second']:.1f} with it")
    assert report["prompts"] == 6, report
    assert abs(got / EXPECTED_LENGTH - 1) <= TOLERANCE, got
    assert report["identical"], report["differences"]
