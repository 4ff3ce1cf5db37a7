"""Does llama.cpp's own converter make of our speculators export the tensors that our GGUF export writes? Not in the default run: it
needs torch.

    python3 -m venv V && V/bin/pip install torch numpy transformers gguf sentencepiece        (minutes, 3 GB)
    V/bin/python tests/optional/llama_converter.py build/release/bin/eaglet LLAMA_CPP_SOURCE

LLAMA_CPP_SOURCE is vendor/llama.cpp of the package llama-cpp-python (scripts/lib.sh names its version). A small draft is trained on a toy
target, exported as GGUF (fp32) and in speculators' layout (fp32); the converter runs over the latter. Every tensor must be equal bit
for bit, and every eagle3.* key that ours has. The toy target has no tokenizer files, so the converter's vocabulary step, which only
copies the target's tokenizer, is left out.
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import toy_target

VARIANTS = {"plain": (), "norms": ("--norm-before-residual", "--norm-before-fc"), "full vocabulary": ("--draft-vocab-size", "0"),
            "head": ("--train-head", "--norm-before-residual")}


def eaglet(binary, *arguments):
    done = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, (arguments, done.returncode, done.stderr)


def convert(source, speculators, target, output):
    sys.path[:0] = [source, os.path.join(source, "gguf-py")]
    import gguf
    import torch
    from conversion.llama import LlamaModel

    LlamaModel.set_vocab = lambda self: None
    with torch.inference_mode():
        model = LlamaModel(Path(speculators), gguf.LlamaFileType.ALL_F32, Path(output), target_model_dir=Path(target))
        model.write()


def contents(path):
    import gguf

    reader = gguf.GGUFReader(path)
    tensors = {t.name: (t.tensor_type.name, list(t.shape), t.data.tobytes()) for t in reader.tensors}
    keys = {name: field.contents() for name, field in reader.fields.items()}
    return tensors, keys


def one(binary, source, place, name, flags):
    model, states, run = f"{place}/toy.gguf", f"{place}/states", f"{place}/{name}"
    size = () if "--draft-vocab-size" in flags else ("--draft-vocab-size", "100")
    eaglet(binary, "train", "--model", model, "--store", states, "--output-dir", run, "--max-seq-len", "64", "--max-steps", "2",
           "--hold-out-every", "0", *size, *flags)
    draft = f"{run}/checkpoints/latest"
    eaglet(binary, "export", "--draft", draft, "--model", model, "--to", "gguf", "--type", "f32", "--output", f"{run}/ours.gguf")
    eaglet(binary, "export", "--draft", draft, "--model", model, "--to", "speculators", "--dtype", "f32", "--verifier", f"{place}/target",
           "--output", f"{run}/hf")
    convert(source, f"{run}/hf", f"{place}/target", f"{run}/theirs.gguf")
    ours, our_keys = contents(f"{run}/ours.gguf")
    theirs, their_keys = contents(f"{run}/theirs.gguf")
    missing = set(ours) - set(theirs)
    differing = [key for key in ours if key in theirs and ours[key] != theirs[key]]
    more = set(theirs) - set(ours)
    assert not missing and not differing, (name, missing, [(k, ours[k][:2], theirs[k][:2]) for k in differing])
    assert more <= {"token_embd.weight", "output.weight"}, (name, more)  # ours takes them from the target where they are its own
    keys = [key for key in our_keys if key.startswith("eagle3.") and our_keys[key] != "none"]  # "none" is what they leave out
    other = {key: (our_keys[key], their_keys.get(key)) for key in keys if not same(our_keys[key], their_keys.get(key))}
    assert not other, (name, other)
    print(f"{name}: {len(ours)} tensors and {len(keys)} keys equal; theirs has {sorted(more) or 'nothing'} more")


def same(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-6 * abs(a)
    return list(a) == list(b) if isinstance(a, list) and b is not None else a == b


def main():
    binary, source = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    with tempfile.TemporaryDirectory() as place:
        toy_target.write_target(f"{place}/toy.gguf")
        toy_target.write_conversations(f"{place}/rows.jsonl", count=8)
        eaglet(binary, "extract", "--model", f"{place}/toy.gguf", "--conversations", f"{place}/rows.jsonl", "--output-dir",
               f"{place}/states")
        os.mkdir(f"{place}/target")
        with open(f"{place}/target/config.json", "w", encoding="utf-8") as file:
            json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": toy_target.HIDDEN,
                       "num_hidden_layers": toy_target.LAYERS, "vocab_size": toy_target.VOCAB}, file)
        for name, flags in VARIANTS.items():
            one(binary, source, place, name, flags)


if __name__ == "__main__":
    main()
