#!/usr/bin/env python3
"""Makes testdata/tokenizers: a small tokenizer of each family's kind, and the ids that the reference libraries give for texts.json.

Usage: make_tokenizers.py testdata/tokenizers [FAMILY...]      (needs: pip install tokenizers==0.23.3 tiktoken)

The vocabularies are learnt from the texts themselves, with the published patterns of the families; real vocabularies are large and
not ours to give away. Each family is a folder: tokenizer.json (or tiktoken.model with its two configs), golden.json.
"""
import base64
import json
import os
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{CONTRACTIONS}?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
NOT_HAN = r"&&[^\p{Han}]"
KIMI = (rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}{NOT_HAN}]*[{LOWER}{NOT_HAN}]+{CONTRACTIONS}?"
        rf"|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}{NOT_HAN}]+[{LOWER}{NOT_HAN}]*{CONTRACTIONS}?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
            "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
SPECIAL = ["<|begin|>", "<|end|>", "<|im_start|>", "<|im_end|>"]
VOCAB = 640


def byte_level(use_regex=False, prefix=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)


def split(*patterns):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns] + [byte_level()])


def learn_byte_level(texts, pre, normalizer=None, special=SPECIAL, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre, decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCAB, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=special, show_progress=False))
    return tokenizer


def bos_template(tokenizer, bos="<|begin|>", eos=None):
    tokens = [(t, tokenizer.token_to_id(t)) for t in (bos, eos) if t is not None]
    return processors.TemplateProcessing(single=f"{bos} $A" + (f" {eos}" if eos else ""), special_tokens=tokens)


def gpt2(texts):
    return learn_byte_level(texts, byte_level(use_regex=True))


def gpt2_prefix(texts):
    """Sequence of post-processors, eos behind, prefix space, added tokens of every flag."""
    tokenizer = learn_byte_level(texts, byte_level(use_regex=True, prefix=True), normalizers.Sequence([normalizers.NFKC()]))
    tokenizer.add_tokens([AddedToken("left", lstrip=True), AddedToken("right", rstrip=True), AddedToken("alone", single_word=True),
                          AddedToken("ﬁne", normalized=True), AddedToken("①raw", normalized=False),
                          AddedToken("both", lstrip=True, rstrip=True, single_word=True, normalized=False)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True),
                                                    bos_template(tokenizer, eos="<|end|>")])
    return tokenizer


def smollm(texts):
    return learn_byte_level(texts, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(use_regex=True)]))


def digit_runs(texts):
    return learn_byte_level(texts, pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split("=", "merged_with_next"),
        pre_tokenizers.Split(Regex(r"[,;]"), "merged_with_previous"), pre_tokenizers.Split(Regex(r"-+"), "contiguous"),
        pre_tokenizers.Split(Regex("[^#]+"), "isolated", invert=True), pre_tokenizers.Split("~", "removed"), byte_level()]))


def llama3(texts):
    tokenizer = learn_byte_level(texts, split(LLAMA3), ignore_merges=True)
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), bos_template(tokenizer)])
    return tokenizer


def qwen2(texts):
    return learn_byte_level(texts, split(QWEN2), normalizers.NFC())


def deepseek_v3(texts):
    return learn_byte_level(texts, split(*DEEPSEEK))


def o200k(texts):
    return learn_byte_level(texts, split(O200K), ignore_merges=True)


def kimi_json(texts):
    return learn_byte_level(texts, split(KIMI), ignore_merges=True)


def learn_spaced(texts, added):
    """A vocabulary as SentencePiece makes it: ▁ for spaces, 256 byte tokens, everything unknown in bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=VOCAB, limit_alphabet=180, show_progress=False))
    learnt = json.loads(tokenizer.to_str())["model"]
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + list(learnt["vocab"])
    vocab = {name: i for i, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(m) for m in learnt["merges"]], unk_token="<unk>", fuse_unk=True,
                                     byte_fallback=True))
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.add_tokens(added)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = bos_template(tokenizer, "<s>")
    return tokenizer


def llama2(texts):
    tokenizer = learn_spaced(texts, [AddedToken("<|end|>", rstrip=True, normalized=False, special=True)])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return tokenizer


def mistral(texts):
    tokenizer = learn_spaced(texts, [AddedToken("[INST]", normalized=False, special=True)])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return tokenizer


def metaspace(texts):
    """Words cut at spaces, the prefix everywhere, unknown characters one token each; merges in the older spelling."""
    tokenizer = learn_spaced(texts, ["left"])
    data = json.loads(tokenizer.to_str())
    data["model"].update(byte_fallback=False, fuse_unk=False)
    data["model"]["merges"] = [" ".join(m) for m in data["model"]["merges"]]
    data["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    data["decoder"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return Tokenizer.from_str(json.dumps(data)), data


def gemma(texts):
    tokenizer = learn_spaced(texts, [AddedToken("\n\n", normalized=False), AddedToken("▁▁", normalized=False)])
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    return tokenizer


FAMILIES = [gpt2, gpt2_prefix, smollm, digit_runs, llama3, qwen2, deepseek_v3, o200k, kimi_json, llama2, mistral, metaspace, gemma]


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


def write_family(folder, make, texts, learn_from):
    made = make(learn_from)
    tokenizer, data = made if isinstance(made, tuple) else (made, json.loads(made.to_str()))
    write(f"{folder}/tokenizer.json", compact(data))
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    framed = tokenizer.encode("x", add_special_tokens=True).ids
    bare = tokenizer.encode("x", add_special_tokens=False).ids
    at = next(i for i in range(len(framed)) if framed[i:i + len(bare)] == bare)
    golden = {"size": max(tokenizer.get_vocab().values()) + 1, "before": framed[:at], "behind": framed[at + len(bare):],
              "ids": [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]}
    write(f"{folder}/golden.json", compact(golden))
    print(os.path.basename(folder), golden["size"], "tokens,", sum(map(len, golden["ids"])), "ids")


def write_kimi(folder, texts, learn_from):
    import tiktoken
    learnt = json.loads(kimi_json(learn_from).to_str())["model"]["vocab"]
    letters = {c: b for b, c in byte_characters().items()}
    tokens = [bytes(letters[c] for c in t) for t in learnt if t not in SPECIAL]
    tokens = [bytes([b]) for b in range(256)] + [t for t in tokens if len(t) > 1]
    ranks = {t: i for i, t in enumerate(tokens)}
    named = {len(tokens) + i: t for i, t in enumerate(SPECIAL)}
    named[len(tokens) + 257] = "<|beyond|>"
    special = {named.get(i, f"<|reserved_token_{i}|>"): i for i in range(len(tokens), len(tokens) + 258)}
    encoding = tiktoken.Encoding(name="kimi", pat_str=KIMI, mergeable_ranks=ranks, special_tokens=special)
    write(f"{folder}/tiktoken.model", "".join(f"{base64.b64encode(t).decode()} {i}\n" for t, i in ranks.items()))
    write(f"{folder}/config.json", compact({"model_type": "kimi_k2", "vocab_size": len(tokens) + 258}))
    write(f"{folder}/tokenizer_config.json", compact({"added_tokens_decoder": {str(i): {"content": t, "special": True} for i, t in named.items()},
                                                      "bos_token": "<|begin|>", "eos_token": "<|end|>"}))
    golden = {"size": len(tokens) + 258, "before": [], "behind": [],
              "ids": [encoding.encode(text, allowed_special="all") for text in texts]}
    write(f"{folder}/golden.json", compact(golden))
    print("kimi", golden["size"], "tokens,", sum(map(len, golden["ids"])), "ids")


def byte_characters():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def main():
    folder, only = sys.argv[1], sys.argv[2:]
    with open(f"{folder}/texts.json", encoding="utf-8") as file:
        data = json.load(file)
    texts = data["texts"] + [bytes.fromhex(raw).decode("utf-8", errors="replace") for raw in data["bytes"]]
    for make in FAMILIES:
        if not only or make.__name__ in only:
            write_family(f"{folder}/{make.__name__}", make, texts, data["texts"])
    if not only or "kimi" in only:
        write_kimi(f"{folder}/kimi", texts, data["texts"])


main()
