"""Does our export load in speculators 0.9.0, and does it compute what we compute? Not in the default run: it needs speculators.

    python3 -m venv V && V/bin/pip install speculators==0.9.0 torch gguf accelerate        (minutes, 6.5 GB)
    cmake --build build/release --target eaglet draft_logits
    V/bin/python tests/optional/speculators_peer.py build/release/bin SAMPLE.gguf GOLDEN_REAL_FOLDER

Takes the real draft of the folder through `eaglet import` and `eaglet export --format speculators`, loads the result with
speculators' own loader, runs both programs in fp32 over the packed batch of the folder (pack.safetensors), and compares the logits of
every drafting step, taken on their side by a hook on lm_head: at most 1e-3 apart wherever ours are computed (rows that are
needed). The verifier's transformers directory is made from the GGUF by the transformers library.
"""
import os
import subprocess
import sys
import tempfile

import torch
from safetensors import safe_open
from safetensors.torch import load_file

STEPS, TOLERANCE = 3, 1e-3


def make_verifier(gguf, directory):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(os.path.dirname(os.path.abspath(gguf)), gguf_file=os.path.basename(gguf),
                                                 dtype=torch.float32)
    if hasattr(model.config, "quantization_config"):  # says GGUF, though the weights are plain by now; refuses to be saved so
        del model.config.quantization_config
    plain = AutoModelForCausalLM.from_config(model.config, dtype=torch.float32)
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(directory)


def their_logits(directory, pack):
    from speculators.losses import resolve_loss_config
    from speculators.models.eagle3 import Eagle3SpeculatorConfig
    from speculators.models.eagle3.core import Eagle3DraftModel

    config = Eagle3SpeculatorConfig.from_pretrained(directory)
    config.transformer_layer_config._attn_implementation = "eager"  # their flex attention wants a compiler on a CPU
    model = Eagle3DraftModel.from_pretrained(directory, config=config, dtype=torch.float32)
    model.eval()
    kept = []
    model.lm_head.register_forward_hook(lambda module, inputs, output: kept.append(output.detach().float()[0]))
    batch = {name: tensor.unsqueeze(0) for name, tensor in pack.items()}
    with torch.no_grad():
        model(hidden_states=batch["in.aux_hidden_states"].float(), input_ids=batch["in.input_ids"].long(),
              document_ids=batch["in.document_ids"].long(), loss_mask=batch["in.loss_mask"].bool(),
              position_ids=batch["in.position_ids"].long(), ttt_steps=STEPS,
              loss_config=resolve_loss_config("kl_div", "eager"),
              verifier_last_hidden_states=batch["in.verifier_last_hidden_states"].float())
    return kept[:STEPS]


def compare(ours, theirs):
    worst = 0.0
    for step in range(STEPS):
        asked = ~torch.isnan(ours[step]).any(dim=1)
        # Their batch has padding rows behind ours when the length is rounded up.
        difference = (ours[step][asked] - theirs[step][: ours.shape[1]][asked]).abs().max().item()
        print(f"step {step}: {int(asked.sum())} rows, largest difference {difference:.2e}, "
              f"largest logit {theirs[step][: ours.shape[1]][asked].abs().max().item():.2f}")
        assert int(asked.sum()) > 100, "hardly anything was compared"
        worst = max(worst, difference)
    assert worst <= TOLERANCE, worst


def main(binaries, gguf, folder):
    with tempfile.TemporaryDirectory() as directory:
        def run(*arguments):
            subprocess.run([os.path.join(binaries, arguments[0]), *arguments[1:]], check=True, stdout=subprocess.DEVNULL)

        make_verifier(gguf, f"{directory}/verifier")
        run("eaglet", "import", f"{folder}/draft", "--model", gguf, "--output-dir", f"{directory}/draft")
        run("eaglet", "export", "--draft", f"{directory}/draft", "--model", gguf, "--format", "speculators", "--verifier",
            f"{directory}/verifier", "--output", f"{directory}/speculators")
        run("draft_logits", f"{directory}/draft", gguf, f"{folder}/pack.safetensors", str(STEPS), f"{directory}/logits.safetensors")
        with safe_open(f"{folder}/pack.safetensors", framework="pt") as file:
            pack = {name: file.get_tensor(name) for name in file.keys() if name.startswith("in.")}
        compare(load_file(f"{directory}/logits.safetensors")["logits"], their_logits(f"{directory}/speculators", pack))
    print("speculators loads the export and gives our logits")


if __name__ == "__main__":
    main(*sys.argv[1:])
