"""A server that answers as a script says, with OpenAI's, vLLM's, llama-server's and SGLang's routes.

A script is a function: it gets the route and the request's JSON and returns an Answer. One thread per connection; connections
are kept. Nothing outside Python's standard library.
"""
import collections
import json
import socket
import threading
import time


class Answer:
    """What goes back. `cut`: only so many bytes of the body; `hang_up`: nothing at all, the connection is closed."""

    def __init__(self, body, status=200, headers=None, wait=0.0, cut=None, hang_up=False, honest=True):
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.status, self.headers, self.wait = status, headers or {}, wait
        self.cut, self.hang_up, self.honest = cut, hang_up, honest  # honest: Content-Length tells the whole length


def chat_reply(message, finish="stop", prompt_ids=None, token_ids=None, **more):
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    reply = {"id": "chatcmpl", "object": "chat.completion", "model": "toy", "choices": [choice], **more}
    if token_ids is not None:
        choice["token_ids"] = token_ids
        reply["prompt_token_ids"] = prompt_ids
    return reply


class Server:
    """`with Server(script, owner="vllm") as server: server.url ...`. Counts what it saw in `requests`."""

    def __init__(self, script, owner="vllm", model="toy", metrics="", health=None, tls=None):
        self.script, self.owner, self.model, self.metrics, self.health = script, owner, model, metrics, health
        self.requests, self.headers, self.open, self.most_open = [], [], 0, 0
        self.counts = collections.Counter()
        self.lock = threading.Lock()
        self.keep_requests = True
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.closing = False
        if tls:
            self.listener = tls.wrap_socket(self.listener, server_side=True)
            self.url = self.url.replace("http:", "https:")

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.closing = True
        try:
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept()
        except OSError:
            pass
        self.listener.close()

    def _accept(self):
        while not self.closing:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                if self.closing or self.listener.fileno() < 0:
                    return
                continue  # a client that left during the TLS handshake
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, connection.makefile("rb") as reader:
            try:
                while self._one(connection, reader):
                    pass
            except (OSError, ValueError):
                pass

    def _one(self, connection, reader):
        line = reader.readline()
        if not line:
            return False
        method, route, _ = line.decode().split(" ", 2)
        headers = {}
        while (line := reader.readline().strip()):
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        body = reader.read(int(headers.get("content-length", 0)))
        answer = self._answer(method, route, headers, body)
        if answer.wait:
            time.sleep(answer.wait)
        with self.lock:
            self.open -= 1
        if answer.hang_up:
            return False
        sent = answer.body if answer.cut is None else answer.body[:answer.cut]
        length = len(answer.body) if answer.honest else len(sent)
        head = f"HTTP/1.1 {answer.status} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n"
        head += "".join(f"{k}: {v}\r\n" for k, v in answer.headers.items()) + "\r\n"
        connection.sendall(head.encode() + sent)
        return answer.cut is None

    def _answer(self, method, route, headers, body):
        with self.lock:
            self.open += 1
            self.most_open = max(self.most_open, self.open)
            self.counts[route] += 1
        if route == "/health":
            return self.health() if self.health else Answer({})
        if route == "/metrics":
            return Answer(self.metrics.encode() if isinstance(self.metrics, str) else self.metrics().encode())
        if route == "/v1/models":
            return Answer({"object": "list", "data": [{"id": self.model, "object": "model", "owned_by": self.owner}]})
        request = json.loads(body) if body else {}
        if self.keep_requests:
            with self.lock:
                self.requests.append((route, request))
                self.headers.append(headers)
        return self.script(route, request)


def ids_of_text(text):
    """The toy tokenizer of scripts: one id a byte."""
    return [3 + byte for byte in text.encode()]


def render(messages):
    text = "".join(f"[{m['role']}]{m.get('content') or ''}" for m in messages)
    return text + "[assistant]"


def vllm_answers(say):
    """A script that answers chats like vLLM, ids included. `say(messages, request)` gives a dict for the message, or a text."""

    def script(route, request):
        if route == "/v1/completions":
            said = say(None, request)
            return Answer({"choices": [{"text": said, "finish_reason": "stop", "token_ids": ids_of_text(said) + [2]}]})
        assert route == "/v1/chat/completions", route
        message = say(request["messages"], request)
        if isinstance(message, Answer):
            return message
        if isinstance(message, str):
            message = {"content": message}
        text = (message.get("reasoning_content") or message.get("reasoning") or "") + (message.get("content") or "")
        return Answer(chat_reply(message, prompt_ids=ids_of_text(render(request["messages"])),
                                 token_ids=ids_of_text(text) + [2],
                                 usage={"prompt_tokens": 1, "completion_tokens": len(text) + 1}))

    return script
