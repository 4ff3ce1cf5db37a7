"""Conversations that broke other tools (testdata/cases/03 to 06), through eaglet prepare, extract, train and inspect.

03: tool calls with null content in several shapes. 04: a file of eighteen odd lines. 05: a length limit that leaves nothing
to learn. 06: a template that drops the thinking of earlier turns."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import toy_target

EAGLET, MODEL = os.environ["EAGLET"], os.environ["EAGLET_MODEL"]
CASES = os.environ["EAGLET_SOURCE"] + "/testdata/cases"


def eaglet(*arguments):
    return subprocess.run([EAGLET, *arguments], capture_output=True, text=True, timeout=300)


def must(result):
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result


def rows(path):
    with open(path) as file:
        return {row["id"]: row for row in map(json.loads, file)}


def side_lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def prepare(place, name, *more, model=MODEL):
    output = f"{place}/{name}.jsonl"
    result = must(eaglet("prepare", *more, "--model", model, "--output", output, "--json", "--progress", "none"))
    return json.loads(result.stdout), rows(output), output


def show(path, identity):
    """The supervised spans of a row as texts, and the whole text."""
    text = must(eaglet("inspect", path, "--show", identity, "--model", MODEL)).stdout.split("\n", 1)[1]
    spans, rest = [], text
    while ">>" in rest:
        _, _, rest = rest.partition(">>")
        span, _, rest = rest.partition("<<")
        spans.append(span)
    return spans, text.replace(">>", "").replace("<<", "")


def case_03(place):
    source = f"{CASES}/03-tool-calls-null-content/conversations.jsonl"
    template = f"{CASES}/../templates/tools.jinja"
    report, kept, output = prepare(place, "c03", source, "--chat-template", template)
    assert (report["lines"], report["kept"]) == (7, 5), report
    assert report["left_out"] == {"assistant says nothing": 1, "broken tool call": 1}, report
    assert sorted(kept) == ["a", "b", "c", "d", "g"]
    assert kept["a"]["input_ids"] == kept["b"]["input_ids"] and kept["a"]["loss_mask"] == kept["b"]["loss_mask"]
    spans, text = show(output, "a")
    assert len(spans) == 2 and "get_weather" in spans[0] and "Oslo" in spans[0], spans
    assert spans[1].strip().startswith("3 degrees."), spans
    assert '{"temp": 3}' in text and not any("temp" in span for span in spans)
    spans, _ = show(output, "c")
    assert spans[0].index("Oslo") < spans[0].index("Rome"), spans
    roles = [turn["role"] for turn in kept["d"]["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant"], roles
    spans, _ = show(output, "g")
    assert "I will look it up." in spans[0] and "get_weather" in spans[0], spans
    sides = side_lines(output.replace(".jsonl", ".skipped.jsonl"))
    reasons = {line["line"]: line.get("reason", line.get("warning")) for line in sides}
    assert "call_9" in reasons[7] and "says nothing" in reasons[5] and "not valid JSON" in reasons[6], reasons
    # A template that knows nothing of tools would drop them without a word: refused by name.
    result = must(eaglet("prepare", source, f"{CASES}/04-odd-conversations/conversations.jsonl", "--model", MODEL,
                         "--output", f"{place}/plain.jsonl", "--json", "--progress", "none"))
    assert json.loads(result.stdout)["left_out"]["not rendered by the template"] == 5, result.stdout
    assert not set("abcdg") & set(rows(f"{place}/plain.jsonl"))


def case_04(place):
    source = f"{CASES}/04-odd-conversations/conversations.jsonl"
    report, kept, output = prepare(place, "c04", source)
    assert report["lines"] == 18 and report["blank_lines"] == 1, report
    assert report["kept"] + report["blank_lines"] + sum(report["left_out"].values()) == 18, report
    assert sorted(kept) == ["n1", "n12", "n13", "n15", "n16", "n18", "n4", "n5", "n7", "n8"], sorted(kept)
    assert report["left_out"] == {"no turns": 1, "nothing to learn": 1, "assistant says nothing": 1, "unknown role": 1,
                                  "not valid JSON": 1, "duplicate": 1, "not a list of turns": 1}, report["left_out"]
    reasons = {line["line"]: line["reason"] for line in side_lines(output.replace(".jsonl", ".skipped.jsonl"))}
    assert sorted(reasons) == [2, 3, 6, 9, 11, 14, 17], reasons
    assert "critic" in reasons[9] and "line 1" in reasons[14], reasons
    assert kept["n13"]["input_ids"] == kept["n18"]["input_ids"]
    assert kept["n4"]["loss_mask"].count(1) == kept["n18"]["loss_mask"].count(1), "the opening turn is context"
    spans, _ = show(output, "n7")
    assert spans == ["Hello.<|im_end|>"], spans
    spans, text = show(output, "n15")
    assert "\u2028" in text and "\U0001f44d" in text and spans == ["naïve café 水<|im_end|>"], (spans, text)
    strict = eaglet("prepare", source, "--model", MODEL, "--output", f"{place}/strict.jsonl", "--strict")
    assert strict.returncode == 65 and "line 2" in strict.stderr, strict.stderr
    assert not os.path.exists(f"{place}/strict.jsonl")


def case_05(place):
    source = f"{CASES}/05-truncation-leaves-nothing"
    report, kept, output = prepare(place, "c05", f"{source}/all.jsonl", "--max-seq-len", "32")
    assert sorted(kept) == ["t2", "t3"] and report["cut"] == 1, report
    assert report["left_out"] == {"cut by the length limit": 1, "nothing supervised": 1}, report
    assert len(kept["t2"]["input_ids"]) == len(kept["t2"]["loss_mask"]) == 32
    alone = eaglet("prepare", f"{source}/only_t1.jsonl", "--output", f"{place}/t1.jsonl", "--max-seq-len", "32")
    assert alone.returncode == 1 and "no supervised token is left" in alone.stderr, alone.stderr
    assert "limit of 32" in alone.stderr and "37 or more" in alone.stderr, alone.stderr
    # The same rows straight into the store, and a training run on what is left.
    toy_target.write_target(f"{place}/toy.gguf")
    extract = ("extract", "--model", f"{place}/toy.gguf", "--max-seq-len", "32", "--progress", "none")
    states = must(eaglet(*extract, "--conversations", f"{source}/all.jsonl", "--output-dir", f"{place}/states", "--json"))
    report = json.loads(states.stdout)
    assert (report["documents"], report["skipped_empty"], report["cut_away"]) == (2, 1, 1), report
    assert report["tokens"] == 32 + 20 and report["supervised_tokens"] == 2 + 10, report
    alone = eaglet(*extract, "--conversations", f"{source}/only_t1.jsonl", "--output-dir", f"{place}/none")
    assert alone.returncode == 1 and "limit of 32" in alone.stderr and "37 or more" in alone.stderr, alone.stderr
    trained = must(eaglet("train", "--model", f"{place}/toy.gguf", "--store", f"{place}/states", "--output-dir",
                          f"{place}/draft", "--max-seq-len", "64", "--draft-vocab-size", "0", "--epochs", "1",
                          "--hold-out-every", "0", "--json", "--progress", "none"))
    loss = json.loads(trained.stdout)["last_loss"]
    assert loss and all(0 < value < 100 for value in (loss if isinstance(loss, list) else [loss])), loss
    # The log says how many supervised tokens each step had: together the 2 of t2 and the 10 of t3.
    with open(f"{place}/draft/log.jsonl") as file:
        steps = [record for record in map(json.loads, file) if record["event"] == "step"]
    assert sum(record["supervised_tokens"] for record in steps) == 12, steps


def case_06(place):
    source = f"{CASES}/06-thinking-in-earlier-turns"
    template = ("--chat-template", f"{source}/chat_template.jinja")
    report, kept, output = prepare(place, "c06", f"{source}/conversations.jsonl", *template)
    assert report["kept"] == 3 and report["with_thinking"] == 2, report
    assert sorted(kept) == ["k1#1/2", "k1#2/2", "k2", "k3#1/2", "k3#2/2"], sorted(kept)
    spans, text = show(output, "k1#1/2")
    assert spans == ["<think>\ntwo twos\n</think>\n\n4<|im_end|>"], spans
    spans, text = show(output, "k1#2/2")
    assert spans == ["<think>\nfour threes\n</think>\n\n12<|im_end|>"] and "two twos" not in text, (spans, text)
    for identity, name in (("k1#2/2", "k1"), ("k2", "k2"), ("k3#2/2", "k3")):
        with open(f"{source}/rendered_{name}.txt") as file:
            whole = file.read()
        _, text = show(output, identity)
        assert text.strip() == whole.strip(), (identity, text, whole)
    spans, _ = show(output, "k2")
    assert spans == ["hi<|im_end|>"], spans
    spans, _ = show(output, "k3#2/2")
    assert spans == ["<think>\nhe wants the marker\n</think>\n\n<|im_start|>assistant<|im_end|>"], spans
    _, _, learnt = prepare(place, "c06b", f"{source}/conversations.jsonl", *template, "--learn-empty-thinking")
    assert show(learnt, "k2")[0] == ["<think>\n\n</think>\n\nhi<|im_end|>"]
    _, last, output = prepare(place, "c06c", f"{source}/conversations.jsonl", *template, "--last-turn-only")
    assert sorted(last) == ["k1", "k2", "k3"] and len(show(output, "k1")[0]) == 1
    # A template whose prompt does not begin the rendered turn: nothing can be told apart, the talk is refused by id.
    with open(f"{place}/unsure.jinja", "w") as file:
        file.write("{% for m in messages %}<|im_start|>{{ m.role }} {{ loop.length }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                   "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
    unsure = eaglet("prepare", f"{source}/conversations.jsonl", "--model", MODEL, "--chat-template",
                    f"{place}/unsure.jinja", "--output", f"{place}/unsure.jsonl")
    assert unsure.returncode == 1, unsure.stderr
    assert [line["id"] for line in side_lines(f"{place}/unsure.skipped.jsonl")] == ["k1", "k2", "k3"]


def main():
    if not os.path.exists(MODEL):
        print(f"the sample model is not at {MODEL}")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="eaglet-cases-") as place:
        for case in (case_03, case_04, case_05, case_06):
            case(place)
            print(case.__name__, "as expected")


main()
