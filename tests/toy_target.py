"""A tiny llama-architecture GGUF and conversations for it, for tests that need a whole pipeline in milliseconds.

The weights are random numbers from a fixed seed; the vocabulary is <unk>, <s>, </s>, the 256 bytes and a few words.
"""
import json
import random
import struct

LAYERS, HIDDEN, HEADS, KV_HEADS, FFN, CONTEXT = 8, 64, 4, 2, 96, 512
WORDS = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + [f"w{i}" for i in range(61)]
VOCAB = len(WORDS)  # 320
UINT32, FLOAT32, STRING, ARRAY, INT32, BOOL = 4, 6, 8, 9, 5, 7
ALIGNMENT = 32


def _string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(kind, value):
    if kind == STRING:
        return _string(value)
    return struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}[kind], value)


def pair(key, kind, value, element=None):
    head = _string(key) + struct.pack("<I", kind)
    if kind != ARRAY:
        return head + _value(kind, value)
    return head + struct.pack("<IQ", element, len(value)) + b"".join(_value(element, v) for v in value)


def metadata():
    types = [2, 3, 3] + [6] * 256 + [1] * (VOCAB - 259)
    return [
        pair("general.architecture", STRING, "llama"),
        pair("general.name", STRING, "toy"),
        pair("llama.block_count", UINT32, LAYERS),
        pair("llama.context_length", UINT32, CONTEXT),
        pair("llama.embedding_length", UINT32, HIDDEN),
        pair("llama.feed_forward_length", UINT32, FFN),
        pair("llama.attention.head_count", UINT32, HEADS),
        pair("llama.attention.head_count_kv", UINT32, KV_HEADS),
        pair("llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5),
        pair("llama.rope.dimension_count", UINT32, HIDDEN // HEADS),
        pair("llama.rope.freq_base", FLOAT32, 10000.0),
        pair("llama.vocab_size", UINT32, VOCAB),
        pair("tokenizer.ggml.model", STRING, "llama"),
        pair("tokenizer.ggml.tokens", ARRAY, WORDS, STRING),
        pair("tokenizer.ggml.scores", ARRAY, [0.0] * VOCAB, FLOAT32),
        pair("tokenizer.ggml.token_type", ARRAY, types, INT32),
        pair("tokenizer.ggml.bos_token_id", UINT32, 1),
        pair("tokenizer.ggml.eos_token_id", UINT32, 2),
    ]


def _shapes():
    kv = HIDDEN // HEADS * KV_HEADS
    shapes = {"token_embd.weight": (VOCAB, HIDDEN), "output_norm.weight": (HIDDEN,)}
    for i in range(LAYERS):
        shapes.update({
            f"blk.{i}.attn_norm.weight": (HIDDEN,), f"blk.{i}.ffn_norm.weight": (HIDDEN,),
            f"blk.{i}.attn_q.weight": (HIDDEN, HIDDEN), f"blk.{i}.attn_k.weight": (kv, HIDDEN),
            f"blk.{i}.attn_v.weight": (kv, HIDDEN), f"blk.{i}.attn_output.weight": (HIDDEN, HIDDEN),
            f"blk.{i}.ffn_gate.weight": (FFN, HIDDEN), f"blk.{i}.ffn_up.weight": (FFN, HIDDEN),
            f"blk.{i}.ffn_down.weight": (HIDDEN, FFN)})
    return shapes


def write_gguf(path, pairs, tensors):
    """tensors: {name: (shape, values)}, fp32."""
    infos, blobs, offset = [], [], 0
    for name, (shape, values) in tensors.items():
        # GGUF lists the dimensions from the fastest one; type 0 is fp32.
        infos.append(_string(name) + struct.pack("<I", len(shape)) +
                     b"".join(struct.pack("<Q", n) for n in reversed(shape)) + struct.pack("<IQ", 0, offset))
        blob = struct.pack(f"<{len(values)}f", *values)
        blob += b"\0" * (-len(blob) % ALIGNMENT)
        blobs.append(blob)
        offset += len(blob)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + b"".join(infos)
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % ALIGNMENT) + b"".join(blobs))


def write_target(path, seed=1):
    rng = random.Random(seed)
    tensors = {}
    for name, shape in _shapes().items():
        count = 1
        for n in shape:
            count *= n
        scale = 1.0 if len(shape) == 2 and "token_embd" in name else 0.15
        tensors[name] = (shape, [1.0] * count if len(shape) == 1 else [rng.gauss(0, scale) for _ in range(count)])
    write_gguf(path, metadata(), tensors)


def write_conversations(path, count=24, seed=2):
    """Rows of ids only: each answer walks along the words in steps that depend on its first one."""
    rng = random.Random(seed)
    with open(path, "w") as file:
        for i in range(count):
            prompt = [1] + [rng.randrange(259, VOCAB) for _ in range(rng.randrange(3, 9))]
            answer, word = [], rng.randrange(61)
            for _ in range(rng.randrange(10, 40)):
                word = (word * 3 + 7) % 61
                answer.append(259 + word)
            file.write(json.dumps({"id": f"t{i:04d}", "prompt_ids": prompt, "response_ids": answer + [2],
                                   "stop": "eos"}) + "\n")
