"""eaglet generate --server against a scripted server: replies that broke other tools (testdata/cases/01 and 02), bad statuses,
broken and slow replies, kills, several servers, keys, talks written anew turn by turn."""
import collections
import json
import os
import random
import resource
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from scripted_server import Answer, Server, chat_reply, ids_of_text, vllm_answers

EAGLET, MODEL = os.environ["EAGLET"], os.environ["EAGLET_MODEL"]
CASES = os.environ["EAGLET_SOURCE"] + "/testdata/cases"
SEED = int(os.environ.get("EAGLET_TEST_SEED", random.randrange(1 << 30)))


def command(server, place, prompts, *more, name="c"):
    urls = server if isinstance(server, str) else server.url
    return [EAGLET, "generate", "--server", urls, "--prompts", prompts, "--output", f"{place}/{name}.jsonl",
            "--retry-wait", "0.02", "--progress", "plain", *more]


def run(*arguments, code=0, env=None, **named):
    result = subprocess.run(command(*arguments, **named), capture_output=True, text=True, timeout=300,
                            env={**os.environ, **(env or {})})
    assert result.returncode == code, f"exit {result.returncode}, expected {code}\n{result.stdout}\n{result.stderr}"
    return result


def report(*arguments, **named):
    result = run(*arguments, "--json", **named)
    parsed = json.loads(result.stdout)
    served = parsed["served"]
    if served:
        assert served["asked"] == (served["whole"] + served["cut_while_thinking"] + served["cut_in_answer"] + served["empty"]
                                   + served["refused"] + sum(served["failed"].values()) + served["not_reached"]), served
    assert parsed["lines"] == parsed["prompts"] + parsed["blank_lines"] + sum(parsed["left_out"].values()), parsed
    return parsed, result.stderr


def rows(path):
    with open(path) as file:
        listed = [json.loads(line) for line in file]
    assert len(listed) == len({row["id"] for row in listed}), "an id twice"
    return {row["id"]: row for row in listed}


def write_prompts(path, count, first=0):
    with open(path, "w") as file:
        for i in range(first, first + count):
            file.write(json.dumps({"id": f"p{i}", "messages": [{"role": "user", "content": f"question {i}"}]}) + "\n")
    return path


def question_of(request):
    return request["messages"][-1]["content"]


def recorded(case):
    with open(f"{CASES}/{case}/responses.jsonl") as file:
        return {(reply := json.loads(line)).pop("prompt_id"): reply for line in file}


class Recorded:
    """Answers each prompt with its recorded reply; the question's text tells which prompt it is."""

    def __init__(self, replies, by_question):
        self.replies, self.by_question, self.asked = replies, by_question, collections.Counter()

    def __call__(self, _, request):
        key = self.by_question[question_of(request)]
        self.asked[key] += 1
        return Answer(self.replies[key])


THINKING_TEMPLATE = ("--model", MODEL, "--chat-template", f"{CASES}/06-thinking-in-earlier-turns/chat_template.jinja")


def case_01(place):
    prompts = f"{CASES}/01-reasoning-field-renamed/prompts.jsonl"
    with open(prompts) as file:
        by_question = {row["messages"][0]["content"]: row["id"] for row in map(json.loads, file)}
    replies = recorded("01-reasoning-field-renamed")
    with Server(Recorded(replies, by_question)) as server:
        result, log = report(server, place, prompts, "--expect-thinking", *THINKING_TEMPLATE)
        assert "1 of 5 answers have no thinking" in log and "no token ids" in log, log
    kept = rows(f"{place}/c.jsonl")
    assert len(kept) == 5 and result["served"]["without_thinking"] == 1 and result["served"]["tokenised_here"] == 5, result
    turns = {key: row["messages"][-1] for key, row in kept.items()}
    assert turns["p1"] == {"role": "assistant", "content": "4", "reasoning_content": "Two and two make four."}, turns
    assert turns["p2"]["reasoning_content"] == "Only 1 and 7 divide 7." and set(turns["p2"]) == set(turns["p1"])
    assert turns["p3"] == {"role": "assistant", "content": "Paris", "reasoning_content": "It is Paris."}
    assert turns["p4"] == {"role": "assistant", "content": "cba", "reasoning_content": "c, then b, then a"}
    assert turns["p5"] == {"role": "assistant", "content": "ok"}
    assert all(1 in row["loss_mask"] for row in kept.values())
    for reply in replies.values():
        message = reply["choices"][0]["message"]
        message.pop("reasoning", None), message.pop("reasoning_content", None)
        message["content"] = "ok"
    with Server(Recorded(replies, by_question)) as server:
        stopped = run(server, place, prompts, "--expect-thinking", *THINKING_TEMPLATE, code=78, name="none")
        assert "none of the first 5 answers has any thinking" in stopped.stderr, stopped.stderr


def case_02(place):
    prompts = write_prompts(f"{place}/c.prompts.jsonl", 8, first=1)
    by_question = {f"question {i}": f"p{i}" for i in range(1, 9)}
    script = Recorded(recorded("02-thinking-cut-by-length"), by_question)
    with Server(script) as server:
        result, _ = report(server, place, prompts, *THINKING_TEMPLATE)
        served = result["served"]
        assert [served[k] for k in ("whole", "cut_while_thinking", "cut_in_answer", "empty", "refused")] == [2, 2, 1, 2, 1]
        assert script.asked["p7"] == 1 and script.asked["p5"] == script.asked["p6"] == 3, script.asked
        kept = rows(f"{place}/c.jsonl")
        assert sorted(kept) == ["p1", "p2", "p3", "p4", "p8"]
        ends = kept["p3"]["input_ids"][-1]
        for key in ("p1", "p2", "p4"):
            assert kept[key]["finish_reason"] == "length" and kept[key]["input_ids"][-1] != ends, kept[key]
        assert kept["p8"]["finish_reason"] == "stop" and kept["p8"]["input_ids"][-1] == ends
        assert kept["p4"]["messages"][-1] == {"role": "assistant", "content": "",
                                              "reasoning_content": "Let me check each divisor in turn, starting with"}
        shown = subprocess.run([EAGLET, "inspect", f"{place}/c.jsonl", "--show", "p4", "--model", MODEL],
                               capture_output=True, text=True).stdout
        assert ">><think>\nLet me check each divisor in turn, starting with<<" in shown and "</think>" not in shown, shown
        with open(f"{place}/c.failed.jsonl") as file:
            failed = {line["id"]: line for line in map(json.loads, file)}
        assert sorted(failed) == ["p5", "p6", "p7"] and "maximum context length is 128" in failed["p7"]["message"], failed
        script.asked.clear()
        report(server, place, prompts, *THINKING_TEMPLATE)
        assert sorted(script.asked) == ["p5", "p6", "p7"], script.asked
        run(server, place, prompts, "--cut", "leave-out", *THINKING_TEMPLATE, name="whole")
        assert sorted(rows(f"{place}/whole.jsonl")) == ["p3", "p8"]
        assert sorted(rows(f"{place}/whole.cut.jsonl")) == ["p1", "p2", "p4"]
        script.asked.clear()
        run(server, place, prompts, "--cut", "leave-out", *THINKING_TEMPLATE, name="whole")
        assert sorted(script.asked) == ["p5", "p6", "p7"], script.asked


def troubled_server(place):
    """Every prompt meets two troubles before its answer; 64 at once, each answered exactly once in the file."""
    rng = random.Random(SEED)
    tries, lock = collections.Counter(), threading.Lock()
    good = vllm_answers(lambda messages, request: "answer to " + messages[-1]["content"])
    troubles = [lambda: Answer({"error": "x"}, status=rng.choice([408, 409, 425, 500, 502, 503, 504])),
                lambda: Answer({}, status=429, headers={"Retry-After": "0"}),
                lambda: Answer({}, hang_up=True), lambda: Answer(b"{\"choices\": [{\"mess", 200),
                lambda: Answer({"choices": "none", "pad": "x" * 3000}, cut=900),
                lambda: Answer({"choices": [{"message": {"content": 7}}]}), lambda: Answer([], 200),
                lambda: Answer({"choices": []})]

    def script(route, request):
        with lock:
            tries[question_of(request)] += 1
            if tries[question_of(request)] <= 2:
                return rng.choice(troubles)()
        time.sleep(0.01)
        return good(route, request)

    prompts = write_prompts(f"{place}/many.prompts.jsonl", 300)
    with Server(script) as server:
        result, _ = report(server, place, prompts, "--concurrency", "64", "--tries", "12", name="many")
        assert server.most_open <= 64, server.most_open
    kept = rows(f"{place}/many.jsonl")
    assert len(kept) == 300 and result["served"]["whole"] == 300 and result["served"]["retried"] > 100, result["served"]
    for key, row in kept.items():
        start = row["loss_mask"].index(1)
        assert row["input_ids"][start:] == ids_of_text(f"answer to question {key[1:]}") + [2], row
        assert row["input_ids"][:start] == ids_of_text(f"[user]question {key[1:]}[assistant]"), row
        assert row["loss_mask"] == [0] * start + [1] * (len(row["input_ids"]) - start)


def busy_server_is_spared(place):
    """More than 8 at once get a 503: the client must come down, and finish."""
    good = vllm_answers(lambda messages, request: "yes")
    server = None

    def script(route, request):
        if server.open > 8:
            return Answer({"error": {"message": "overloaded"}}, status=503)
        time.sleep(0.01)
        return good(route, request)

    prompts = write_prompts(f"{place}/busy.prompts.jsonl", 200)
    with Server(script) as server:
        result, _ = report(server, place, prompts, "--concurrency", "64", "--tries", "50", name="busy")
    assert result["served"]["whole"] == 200 and 0 < result["served"]["busy"] < 1500, result["served"]


def slow_and_dead_servers(place):
    prompts = write_prompts(f"{place}/slow.prompts.jsonl", 20)
    seen = collections.Counter()
    good = vllm_answers(lambda messages, request: "yes")

    def slow_once(route, request):
        seen[question_of(request)] += 1
        answer = good(route, request)
        if question_of(request) == "question 3" and seen["question 3"] == 1:
            answer.wait = 3
        return answer

    with Server(slow_once) as one, Server(good) as two:
        result, _ = report(one, place, prompts, "--timeout", "0.5", name="slow")
        assert result["served"]["whole"] == 20 and seen["question 3"] == 2, (result, seen)
        result, _ = report(f"{one.url},{two.url}/v1", place, prompts, name="two")
        first = sum(n for route, n in one.counts.items() if "chat" in route) - 21
        assert result["served"]["whole"] == 20 and first == two.counts["/v1/chat/completions"] == 10, (first, two.counts)
        one_url = one.url
    # One of two is gone in the middle of a run: the other one does the rest.
    with Server(lambda route, request: Answer({}, hang_up=True)) as dying, Server(good) as living:
        result, _ = report(f"{dying.url},{living.url}", place, prompts, name="half")
        assert result["served"]["whole"] == 20, result
    gone = run(one_url, place, prompts, "--wait-ready", "0", code=69, name="gone")
    assert 'not ready at "connection"' in gone.stderr and "do:" in gone.stderr, gone.stderr
    looks = []

    def loading():
        looks.append(1)
        return Answer({"error": {"message": "Loading model"}}, status=503 if len(looks) < 3 else 200)

    with Server(good, health=loading) as server:
        late = run(server, place, prompts, "--wait-ready", "60", name="late")
        assert 'not ready at "health"' in late.stderr and "Loading model" in late.stderr, late.stderr
        wrong = run(server, place, prompts, "--served-model", "other", code=78, name="wrong")
        assert "does not serve other, but toy" in wrong.stderr, wrong.stderr


def keys_and_refusals(place):
    prompts = write_prompts(f"{place}/keys.prompts.jsonl", 40)
    good = vllm_answers(lambda messages, request: "yes")
    secret = "sk-very-secret-0123456789"
    with Server(good) as server:
        run(server, place, prompts, "--api-key-env", "MY_KEY", env={"MY_KEY": secret}, name="keys")
        assert all(h.get("authorization") == f"Bearer {secret}" for h in server.headers)
    for name in os.listdir(place):
        with open(f"{place}/{name}", "rb") as file:
            assert secret.encode() not in file.read(), name
    with Server(lambda route, request: Answer({"error": "no"}, status=401)) as server:
        refused = run(server, place, prompts, env={"EAGLET_API_KEY": secret}, code=77, name="refused")
        assert "refuses the API key" in refused.stderr and secret not in refused.stderr
    with Server(lambda route, request: Answer({"error": {"message": "max_tokens too large"}}, status=400)) as server:
        stopped = run(server, place, prompts, "--concurrency", "1", code=78, name="all")
        assert "refused the first 16 prompts: 400: max_tokens too large" in stopped.stderr, stopped.stderr
        assert len(server.requests) <= 17, len(server.requests)
    with Server(lambda route, request: Answer(chat_reply({"content": "yes"}))) as server:
        no_ids = run(server, place, prompts, code=78, name="noids")
        assert "gives no token ids" in no_ids.stderr and "--model" in no_ids.stderr, no_ids.stderr
    with Server(good, owner="someone") as server:
        plain = run(server, place, prompts, code=78, name="plain")
        assert "gives no token ids" in plain.stderr and not server.requests, plain.stderr


def settings_travel(place):
    prompts = write_prompts(f"{place}/set.prompts.jsonl", 3)
    with Server(vllm_answers(lambda messages, request: "yes")) as server:
        run(server, place, prompts, "--temperature", "0.7", "--top-p", "0.9", "--seed", "5", "--max-tokens", "77",
            "--request-json", '{"top_k": 20, "chat_template_kwargs": {"thinking": true}}', name="set")
        sent = {question_of(request): request for _, request in server.requests}
        one = sent["question 0"]
        assert (one["temperature"], one["top_p"], one["max_tokens"], one["top_k"]) == (0.7, 0.9, 77, 20), one
        assert one["chat_template_kwargs"] == {"thinking": True} and one["return_token_ids"] is True
        assert len({request["seed"] for request in sent.values()}) == 3
        with open(f"{place}/set.manifest.json") as file:
            manifest = json.load(file)
        assert manifest["settings"]["request"]["top_k"] == 20 and manifest["whole"] == 3 and manifest["ended"] == "done"
        other = run(server, place, prompts, "--temperature", "0.8", "--top-p", "0.9", "--seed", "5", "--max-tokens", "77",
                    "--request-json", '{"top_k": 20, "chat_template_kwargs": {"thinking": true}}', code=78, name="set")
        assert "temperature was 0.7, is 0.8" in other.stderr, other.stderr
        with open(prompts, "a") as file:
            file.write(json.dumps({"id": "p1", "messages": [{"role": "user", "content": "question 1"}]}) + "\n")
            file.write(json.dumps({"id": "p2", "messages": [{"role": "user", "content": "another"}]}) + "\n")
        run(server, place, prompts, name="plainset")
        result, _ = report(server, place, prompts, name="plainset")
        assert result["left_out"] == {"duplicate": 1, "id used twice": 1} and result["already_done"] == 3, result
        changed = f"{place}/changed.prompts.jsonl"
        with open(changed, "w") as file:
            file.write(json.dumps({"id": "p1", "messages": [{"role": "user", "content": "quite another"}]}) + "\n")
        other = run(server, place, changed, code=78, name="plainset")
        assert "p1 is not the one that was answered" in other.stderr, other.stderr


def ids_of_messages(messages):
    ids = []
    for turn in messages:
        ids += ids_of_text(f"[{turn['role']}]{turn.get('content') or ''}") + ([2] if turn["role"] == "assistant" else [])
    return ids + ids_of_text("[assistant]")


def talks_anew(place):
    """--regenerate last and all: the model's own turns replace the source's, rows join where the ids do."""
    talk = [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "old 1"},
            {"role": "user", "content": "b"}, {"role": "assistant", "content": "old 2"}]
    path = f"{place}/talks.json"
    with open(path, "w") as file:
        json.dump([{"id": "t", "messages": talk}, {"messages": talk[:2] + [{"role": "assistant", "content": "x"}]}], file)

    def script(_, request):
        said = f"new {len(request['messages'])}"
        return Answer(chat_reply({"content": said}, prompt_ids=ids_of_messages(request["messages"]),
                                 token_ids=ids_of_text(said) + [2]))

    with Server(script) as server:
        stopped = run(server, place, path, code=65, name="none")
        assert "--regenerate" in stopped.stderr, stopped.stderr
        run(server, place, path, "--regenerate", "last", name="last")
        last = rows(f"{place}/last.jsonl")["t"]
        assert [m["content"] for m in last["messages"]] == ["s", "a", "old 1", "b", "new 4"]
        assert last["input_ids"] == ids_of_messages(talk[:4]) + ids_of_text("new 4") + [2]
        assert last["loss_mask"].count(1) == 6
        server.requests.clear()
        run(server, place, path, "--regenerate", "all", name="all")
        anew = rows(f"{place}/all.jsonl")
        assert len(anew) == 2 and len(server.requests) == 3
        row = anew["t"]
        assert [m["content"] for m in row["messages"]] == ["s", "a", "new 2", "b", "new 4"]
        want = talk[:2] + [{"role": "assistant", "content": "new 2"}, talk[3]]
        assert row["input_ids"] == ids_of_messages(want) + ids_of_text("new 4") + [2]
        assert row["loss_mask"].count(1) == 12, "both answers are the model's own"
        assert not os.path.exists(f"{place}/all.turns.jsonl")
    # History that the server renders otherwise later on (thinking dropped): one row a turn.
    with Server(vllm_answers(lambda messages, request: {"reasoning": "hm", "content": "yes"})) as server:
        run(server, place, path, "--regenerate", "all", name="split")
        split = rows(f"{place}/split.jsonl")
        assert {"t#1/2", "t#2/2"} < set(split) and len(split) == 3, sorted(split)
        run(server, place, path, "--regenerate", "all", name="split")
        assert len(rows(f"{place}/split.jsonl")) == 3 and len(server.requests) == 3


def other_servers(place):
    """llama-server's three requests and SGLang's, with ids from the server."""
    prompts = write_prompts(f"{place}/kinds.prompts.jsonl", 5)

    def llama(route, request):
        if route == "/apply-template":
            return Answer({"prompt": f"<u>{question_of(request)}<a>"})
        if route == "/tokenize":
            return Answer({"tokens": ids_of_text(request["content"])})
        said = bytes(i - 3 for i in request["prompt"]).decode()
        return Answer({"content": said, "tokens": ids_of_text(said) + [2], "stop_type": "eos", "truncated": False})

    with Server(llama, owner="llamacpp") as server:
        run(server, place, prompts, name="llama")
        assert server.counts["/apply-template"] == server.counts["/completion"] == 5
    row = rows(f"{place}/llama.jsonl")["p3"]
    asked = ids_of_text("<u>question 3<a>")
    assert row["input_ids"] == asked + asked + [2] and row["loss_mask"] == [0] * len(asked) + [1] * (len(asked) + 1)
    by_ids = f"{place}/ids.prompts.jsonl"
    with open(by_ids, "w") as file:
        file.writelines(json.dumps({"id": f"i{i}", "prompt_ids": [5, 6, 7 + i]}) + "\n" for i in range(4))

    def sglang(route, request):
        assert route == "/generate", route
        return Answer({"text": "ab", "output_ids": [9, request["input_ids"][-1]],
                       "meta_info": {"finish_reason": {"type": "length", "length": 2}}})

    with Server(sglang, owner="sglang") as server:
        run(server, place, by_ids, name="sglang")
    assert rows(f"{place}/sglang.jsonl")["i2"]["input_ids"] == [5, 6, 9, 9, 9]
    with Server(vllm_answers(lambda messages, request: "ok")) as server:
        run(server, place, by_ids, name="vllm")
        assert server.counts["/v1/completions"] == 4
    assert rows(f"{place}/vllm.jsonl")["i1"]["input_ids"] == [5, 6, 8] + ids_of_text("ok") + [2]
    if os.path.exists(MODEL):  # SGLang renders nothing for us: the target's own template, the server's tokenizer

        def sglang_chat(route, request):
            if route == "/tokenize":
                return Answer({"tokens": ids_of_text(request["prompt"])})
            return sglang(route, request)

        with Server(sglang_chat, owner="sglang") as server:
            run(server, place, prompts, "--model", MODEL, name="sgchat")
            assert any("<|im_start|>user\nquestion 0<|im_end|>" in r["prompt"] for route, r in server.requests
                       if route == "/tokenize")


def killed(place):
    """kill -9 at random moments: no answer twice or lost, and nothing asked again that is in the file; one at a time and
    turn by turn."""
    rng = random.Random(SEED)
    talks = f"{place}/ktalks.jsonl"
    with open(talks, "w") as file:
        for i in range(150):
            turns = []
            for k in range(3):
                turns += [{"role": "user", "content": f"{i}.{k}"}, {"role": "assistant", "content": "old"}]
            file.write(json.dumps({"id": f"p{i}", "messages": turns}) + "\n")
    asked = collections.Counter()

    def script(_, request):
        asked[question_of(request)] += 1
        time.sleep(rng.uniform(0.01, 0.08))
        said = "re " + question_of(request)
        return Answer(chat_reply({"content": said}, prompt_ids=ids_of_messages(request["messages"]),
                                 token_ids=ids_of_text(said) + [2]))

    def turns_in_files():
        done = set()
        for name, key in (("k.jsonl", None), ("k.turns.jsonl", None)):
            if os.path.exists(f"{place}/{name}"):
                with open(f"{place}/{name}", "rb") as file:
                    for line in file.read().split(b"\n")[:-1]:
                        row = json.loads(line)
                        turns = row["messages"] if "messages" in row else [row["turn"]]
                        done |= {t["content"][3:] for t in turns if t["role"] == "assistant"}
        return done

    kills = 0
    with Server(script) as server:
        arguments = command(server, place, talks, "--regenerate", "all", "--concurrency", "16", name="k")
        for _ in range(6):
            before, counted = turns_in_files(), asked.copy()
            process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(rng.uniform(0.05, 0.35))
            process.kill()
            kills += process.wait() == -9
            time.sleep(0.05)
            assert all(asked[q] == counted[q] for q in before), "asked again for what is in the file"
        before, counted = turns_in_files(), asked.copy()
        run(server, place, talks, "--regenerate", "all", "--concurrency", "16", name="k")
        assert all(asked[q] == counted[q] for q in before), "asked again for what is in the file"
    kept = rows(f"{place}/k.jsonl")
    assert len(kept) == 150 and kills >= 3, (len(kept), kills)
    for key, row in kept.items():
        assert [m["content"] for m in row["messages"][1::2]] == [f"re {key[1:]}.{k}" for k in range(3)], row["messages"]
    # In flight at a kill: at most `concurrency` turns a kill were paid for and lost.
    assert sum(asked.values()) <= 450 + 16 * kills, (sum(asked.values()), kills)
    print(f"killed {kills} times, {sum(asked.values())} requests for 450 turns")


def full_disk(place):
    """A disk that is full in the middle: a clean stop that says so, and the same command goes on. What was answered
    and could not be written is asked again, nothing else."""
    prompts = write_prompts(f"{place}/p.jsonl", 120)
    asked = collections.Counter()

    def say(messages, request):
        asked[messages[-1]["content"]] += 1
        return "x" * 300

    def small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))  # write(2) fails as on a full disk

    with Server(vllm_answers(say)) as server:
        arguments = command(server, place, prompts, "--concurrency", "8", name="full")
        full = subprocess.run(arguments, capture_output=True, text=True, timeout=120, preexec_fn=small_disk)
        assert full.returncode == 73, f"exit {full.returncode}\n{full.stdout}\n{full.stderr}"
        assert f"{place}/full.jsonl" in full.stderr and "do:" in full.stderr, full.stderr
        with open(f"{place}/full.jsonl", "rb") as file:  # the line that did not fit may lie there in part
            kept = {row["id"]: row for row in map(json.loads, file.read().split(b"\n")[:-1])}
        assert 5 < len(kept) < 120, len(kept)
        before = asked.copy()
        result, _ = report(server, place, prompts, "--concurrency", "8", name="full")
        assert result["already_done"] == len(kept) and result["answered"] == 120 - len(kept), result
    after = rows(f"{place}/full.jsonl")
    assert len(after) == 120 and all(after[key] == row for key, row in kept.items())
    again = [q for q in before if asked[q] > before[q]]
    assert all(f"p{q.split()[1]}" not in kept for q in again) and len(again) <= 9, again


def more_prompts(place):
    """More prompts go on from what is there: a larger --max-prompts, then a longer file; only the new ones are asked."""
    asked = []

    def say(messages, request):
        asked.append(messages[-1]["content"])
        return "yes"

    prompts = write_prompts(f"{place}/p.jsonl", 30)
    with Server(vllm_answers(say)) as server:
        for most, done, new in ((10, 0, 10), (25, 10, 15), (0, 25, 5)):
            result, _ = report(server, place, prompts, "--max-prompts", str(most), name="more")
            assert (result["already_done"], result["answered"]) == (done, new), result
        write_prompts(prompts, 40)
        result, _ = report(server, place, prompts, name="more")
        assert (result["already_done"], result["answered"]) == (30, 10), result
        # Under an old id another prompt is another sample: refused, and nothing is asked.
        with open(prompts, "a") as file:
            file.write(json.dumps({"id": "p41", "messages": [{"role": "user", "content": "new"}]}) + "\n")
        changed = f"{place}/changed.jsonl"
        with open(prompts) as source, open(changed, "w") as file:
            file.write(source.read().replace("question 7\"", "question 7000\""))
        before = len(asked)
        refused = run(server, place, changed, name="more", code=78)
        assert "p7" in refused.stderr and "question 7000" not in asked, refused.stderr
        assert len(asked) - before <= 1, asked[before:]
    assert sorted(rows(f"{place}/more.jsonl")) == sorted(f"p{i}" for i in range(40))


def stall_shows_health(place):
    prompts = write_prompts(f"{place}/stall.prompts.jsonl", 2)

    def stuck(_, request):
        return Answer(chat_reply({"content": "late"}, prompt_ids=[3], token_ids=[4, 2]), wait=1.5)

    with Server(stuck, metrics="vllm:num_requests_running 2\nvllm:num_requests_waiting 7\n") as server:
        result = run(server, place, prompts, "--stall-after", "0.4", name="stall")
        assert "no reply for" in result.stderr and "health 200, 2 running, 7 waiting" in result.stderr, result.stderr


def https(place):
    if not shutil.which("openssl"):
        return
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", f"{place}/key.pem", "-out", f"{place}/cert.pem"],
                   check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{place}/cert.pem", f"{place}/key.pem")
    prompts = write_prompts(f"{place}/tls.prompts.jsonl", 3)
    with Server(vllm_answers(lambda messages, request: "yes"), tls=context) as server:
        untrusted = run(server, place, prompts, "--wait-ready", "0", code=69, name="untrusted")
        assert "certificate" in untrusted.stderr, untrusted.stderr
        run(server, place, prompts, "--ca-file", f"{place}/cert.pem", name="tls")
    assert len(rows(f"{place}/tls.jsonl")) == 3


def cheap_and_flat(place):
    """CPU time of a request, and memory that does not grow with their number (EAGLET_BENCH_PROMPTS, 2,000 where it is not given)."""
    many = int(os.environ.get("EAGLET_BENCH_PROMPTS", 2000))

    def one(count):
        prompts = write_prompts(f"{place}/bench{count}.prompts.jsonl", count)
        with Server(vllm_answers(lambda messages, request: "x" * 200)) as server:
            server.keep_requests = False
            process = subprocess.Popen(command(server, place, prompts, "--json", "--concurrency", "64", name=f"bench{count}"),
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            output = process.stdout.read()
            _, status, used = os.wait4(process.pid, 0)
            assert status == 0, output
        return json.loads(output)["served"]["cpu_seconds"] / count * 1000, used.ru_maxrss / 1024

    _, small = one(200)
    milliseconds, large = one(many)
    print(f"{milliseconds:.3f} ms of CPU a request; peak memory {small:.1f} MB for 200, {large:.1f} MB for {many}")
    assert large - small < 8, "memory grows with the number of requests"
    assert milliseconds < (1 if "san" not in EAGLET else 20), milliseconds


def main():
    print(f"EAGLET_TEST_SEED={SEED}")
    parts = [troubled_server, busy_server_is_spared, slow_and_dead_servers, keys_and_refusals, settings_travel, talks_anew,
             other_servers, killed, full_disk, more_prompts, stall_shows_health, https, cheap_and_flat]
    if os.path.exists(MODEL):
        parts = [case_01, case_02] + parts
    if len(sys.argv) > 1:
        parts = [part for part in parts if part.__name__ in sys.argv[1:]]
    with tempfile.TemporaryDirectory(prefix="eaglet-served-") as root:
        for part in parts:
            start = time.monotonic()
            os.mkdir(f"{root}/{part.__name__}")
            part(f"{root}/{part.__name__}")
            print(f"{part.__name__}: {time.monotonic() - start:.1f} s")


main()
