"""An OpenAI-compatible server on loopback: what it answers is scripted, and it keeps account of what it was asked.

    with JudgeServer([rate_limited("1"), {"verdict": "yes"}]) as server:
        ...  # a client of server.url
    assert len(server.requests) == 2

It needs the standard library alone, and imports nothing of ours.
"""

import asyncio
import json
import math
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Self

CLOSE_SECONDS = 10
END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request for a completion."""

    body: dict[str, Any]
    headers: Mapping[str, str]  # names in lower case
    peer: tuple[str, int]  # the same for all requests over one connection
    at: float  # time.monotonic()

    @property
    def system(self) -> str:
        return self.text_of("system")

    @property
    def user(self) -> str:
        return self.text_of("user")

    @property
    def response_format(self) -> dict[str, Any] | None:
        return self.body.get("response_format")

    def text_of(self, role: str) -> str:
        """Return the texts of all messages of a role."""
        contents = [message["content"] for message in self.body["messages"] if message["role"] == role]
        parts = [[{"text": text}] if isinstance(text, str) else text for text in contents]
        return "\n".join(part["text"] for content in parts for part in content)


@dataclass(frozen=True)
class Reply:
    """One answer; `raw` is sent as the body in place of a completion."""

    content: str | None = ""
    finish_reason: str = "stop"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0  # on top of the server's own
    refusal: str | None = None
    usage: tuple[int, int] | None = (100, 20)  # tokens of prompt and completion
    raw: str | None = None
    disconnects: bool = False

    def payload(self, model: str) -> bytes:
        """Return the whole response, head and body."""
        body = (json.dumps(self.completion(model)) if self.raw is None else self.raw).encode()
        fields = {"Content-Type": "application/json", "Content-Length": str(len(body)), **self.headers}
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}", *map(": ".join, fields.items())]
        return "\r\n".join(lines).encode() + END_OF_HEAD + body

    def completion(self, model: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": self.content}
        if self.refusal is not None:
            message["refusal"] = self.refusal
        choice = {"index": 0, "message": message, "finish_reason": self.finish_reason, "logprobs": None}
        answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}
        if self.usage is not None:
            prompt, completion = self.usage
            counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
            answer["usage"] = counts
        return answer


Answer = Reply | str | dict[str, Any]  # a text is its content, a dict its content as JSON
Answers = Answer | Sequence[Answer] | Callable[[Request], Answer]


def failure(status: int, message: str, *, kind: str, code: str | None = None, param: str | None = None) -> Reply:
    """An error as OpenAI's own server puts it."""
    error = {"message": message, "type": kind, "param": param, "code": code}
    return Reply(status=status, raw=json.dumps({"error": error}))


def rate_limited(retry_after: str | None = "1") -> Reply:
    """429; `retry_after` in seconds or as a date (`http_date`), None for no such header."""
    reply = failure(429, "Rate limit reached for requests", kind="requests", code="rate_limit_exceeded")
    return reply if retry_after is None else replace(reply, headers={"Retry-After": retry_after})


def http_date(in_s: float) -> str:
    """The time that is so many seconds away, in whole seconds, as HTTP writes it."""
    return formatdate(math.ceil(time.time() + in_s), usegmt=True)


def server_error(status: int = 500) -> Reply:
    return failure(status, "The server had an error while processing your request", kind="server_error")


def unauthorized(message: str = "Incorrect API key provided: sk-planted-0123456789.") -> Reply:
    """401; as OpenAI does, its message tells the key."""
    return failure(401, message, kind="invalid_request_error", code="invalid_api_key")


def forbidden() -> Reply:
    return failure(403, "You do not have access to this model", kind="invalid_request_error", code="permission_denied")


def not_found() -> Reply:
    message = "The model `no-such-model` does not exist or you do not have access to it."
    return failure(404, message, kind="invalid_request_error", code="model_not_found")


def bad_request(message: str = "Invalid value for 'messages'.") -> Reply:
    return failure(400, message, kind="invalid_request_error", code="invalid_value", param="messages")


def context_too_long() -> Reply:
    message = (
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens. "
        "Please reduce the length of the messages."
    )
    code = "context_length_exceeded"
    return failure(400, message, kind="invalid_request_error", code=code, param="messages")


def content_filter() -> Reply:
    """An answer that was cut off by a filter."""
    return Reply(content="", finish_reason="content_filter")


def prompt_filter() -> Reply:
    """Azure's answer to a prompt that its filter stops: HTTP 400."""
    error = {
        "message": "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
        "type": None,
        "param": "prompt",
        "code": "content_filter",
        "status": 400,
        "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"hate": {"filtered": True}}},
    }
    return Reply(status=400, raw=json.dumps({"error": error}))


def refused(words: str = "I'm sorry, I can't assist with that request.") -> Reply:
    """A structured refusal: no content, the words in its place."""
    return Reply(content=None, refusal=words)


def hang() -> Reply:
    """No answer, until client or server hangs up."""
    return Reply(delay_s=math.inf)


def disconnects() -> Reply:
    """No answer: the connection is closed."""
    return Reply(disconnects=True)


def cut_off(text: str) -> Reply:
    """An answer that ended at `max_tokens`."""
    return Reply(content=text, finish_reason="length")


def html_page(status: int = 200) -> Reply:
    """What a proxy answers in the server's place."""
    page = "<!DOCTYPE html><html><body><h1>Please sign in</h1></body></html>"
    return Reply(status=status, raw=page, headers={"Content-Type": "text/html; charset=utf-8"})


def empty() -> Reply:
    return Reply(content="")


def null() -> Reply:
    return Reply(content=None)


def fenced(obj: object) -> Reply:
    return Reply(f"```json\n{json.dumps(obj, indent=2)}\n```")


def with_prose(obj: object) -> Reply:
    return Reply(f"Sure! Here is my verdict:\n\n{json.dumps(obj)}\n\nLet me know if you need more.")


def with_reasoning(obj: object) -> Reply:
    """The object after a thought that holds braces, and one more verdict, itself."""
    return Reply(f'<think>Is it {{"verdict": "maybe"}}? Let me look {{again}}.</think>\n\n{json.dumps(obj)}')


def two_objects(first: object, second: object) -> Reply:
    return Reply(f"{json.dumps(first)}\n{json.dumps(second)}")


REFUSALS = {
    "json_schema": "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
    "json_object": "Invalid parameter: 'response_format' of type 'json_object' is not supported with this model.",
    "schema": "Unknown parameter: 'response_format.schema'.",  # the key beside the type json_object
    "temperature": "Unsupported parameter: 'temperature' is not supported with this model.",
}
LLAMA_CPP = (
    "1 validation error:\n  {'type': 'literal_error', 'loc': ('body', 'response_format', 'type'), "
    "'msg': \"Input should be 'text' or 'json_object'\", 'input': 'json_schema'}"
)


def refusals(refuses: frozenset[str]) -> dict[str, Reply]:
    """What a server that doesn't know some parameters answers to each, from the likes of "json_schema:400"."""
    found = {}
    for refusal in refuses:
        what, _, status = refusal.partition(":")
        if what not in REFUSALS or not status.isdigit():
            raise ValueError(f"{refusal!r}: a server here refuses {', '.join(REFUSALS)}, as 'temperature:400'")
        if refusal == "json_schema:500":
            found[what] = failure(500, LLAMA_CPP, kind="internal_server_error")
        else:
            found[what] = failure(int(status), REFUSALS[what], kind="invalid_request_error", param=what)
    return found


class JudgeServer:
    """A server that answers by a function, by one answer, or by a script, whose last answer repeats without end.

    Args:
        answer: what a completion is answered with. A function runs in the server's thread; what it raises closes the
            connection, and is raised again when the server closes.
        delay_s: how long every answer takes.
        refuses: parameters that are answered by an error, as "json_schema:400" or "temperature:400"; such a request is
            among `requests`, and takes nothing from the script.
    """

    def __init__(self, answer: Answers, *, delay_s: float = 0.0, refuses: frozenset[str] = frozenset()) -> None:
        self.answer = answer if callable(answer) else scripted(answer)
        self.delay_s = delay_s
        self.refuses = refusals(refuses)
        self.requests: list[Request] = []
        self.in_flight = 0
        self.max_in_flight = 0
        self.errors: list[BaseException] = []

    def __enter__(self) -> Self:
        listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        self.loop = asyncio.SelectorEventLoop()
        self.closing = asyncio.Event()
        self.connections: set[Connection] = set()
        self.thread = threading.Thread(target=self.run, args=(listener,), name="judge-server")
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.closing.set)
        self.thread.join(CLOSE_SECONDS)
        if self.thread.is_alive():
            raise TimeoutError(f"the server did not close within {CLOSE_SECONDS} s")
        if self.errors and kind is None:
            raise self.errors[0]

    def run(self, listener: socket.socket) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self.serve(listener))

    async def serve(self, listener: socket.socket) -> None:
        self.loop.set_exception_handler(lambda _, context: self.errors.append(context["exception"]))
        server = await self.loop.create_server(lambda: Connection(self), sock=listener)
        await self.closing.wait()
        self.loop.remove_reader(listener.fileno())
        for _ in range(3):
            await asyncio.sleep(0)  # those already accepted become connections; a closed server can't take them
        server.close()
        for connection in list(self.connections):
            connection.transport.abort()
        await server.wait_closed()
        while self.connections:
            await asyncio.sleep(0)

    def reply_to(self, request: Request) -> Reply:
        self.requests.append(request)
        form = request.response_format or {}
        asked = {form.get("type"), *form, *request.body}
        answer = next((reply for what, reply in self.refuses.items() if what in asked), None) or self.answer(request)
        if isinstance(answer, Reply):
            return answer
        return Reply(answer if isinstance(answer, str) else json.dumps(answer))


def scripted(script: Answer | Sequence[Answer]) -> Callable[[Request], Answer]:
    """Return a function that gives one answer after the other, and the last one from then on."""
    answers = [script] if isinstance(script, Reply | str | dict) else list(script)
    if not answers:
        raise ValueError("a script needs an answer")
    return lambda _: answers.pop(0) if len(answers) > 1 else answers[0]


class Connection(asyncio.Protocol):
    """A kept-alive connection: one request after the other."""

    transport: asyncio.Transport

    def __init__(self, server: JudgeServer) -> None:
        self.server = server
        self.received = b""
        self.busy = False
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.connections.discard(self)
        if self.busy:
            self.finish()

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.read()

    def read(self) -> None:
        """Take the next request from what was received, if it is whole and none is in hand."""
        head, found, rest = self.received.partition(END_OF_HEAD)
        if self.busy or not found:
            return
        line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in lines)}
        length = int(headers.get("content-length", 0))
        if len(rest) >= length:
            self.received = rest[length:]
            self.take(line, headers, rest[:length])

    def take(self, line: str, headers: Mapping[str, str], body: bytes) -> None:
        self.busy = True
        self.server.in_flight += 1
        self.server.max_in_flight = max(self.server.max_in_flight, self.server.in_flight)
        if line.startswith("POST /v1/chat/completions "):
            peer = self.transport.get_extra_info("peername")
            request = Request(body=json.loads(body), headers=headers, peer=peer, at=time.monotonic())
            reply = self.server.reply_to(request)
            self.send_after(self.server.delay_s + reply.delay_s, reply, request.body.get("model", ""))
        elif line.startswith("GET /v1/models "):
            models = {"object": "list", "data": [{"id": "judge", "object": "model", "owned_by": "tests"}]}
            self.send(Reply(raw=json.dumps(models)), "")
        else:
            self.send(failure(404, f"Invalid URL ({line})", kind="invalid_request_error"), "")

    def send_after(self, delay_s: float, reply: Reply, model: str) -> None:
        if delay_s == 0:
            self.send(reply, model)
        elif delay_s < math.inf:
            self.timer = self.server.loop.call_later(delay_s, self.send, reply, model)

    def send(self, reply: Reply, model: str) -> None:
        self.finish()
        if reply.disconnects:
            self.transport.close()
            return
        self.transport.write(reply.payload(model))
        self.read()

    def finish(self) -> None:
        self.busy = False
        self.server.in_flight -= 1
        if self.timer is not None:
            self.timer.cancel()
