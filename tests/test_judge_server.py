import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, RemoteDisconnected
from urllib.parse import urlsplit

import pytest
from judge_server import (
    JudgeServer,
    Reply,
    context_too_long,
    disconnects,
    hang,
    html_page,
    http_date,
    prompt_filter,
    rate_limited,
    two_objects,
)

MESSAGES = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "q: é{0}%s"}]


def connect(server):
    address = urlsplit(server.url)
    return HTTPConnection(address.hostname, address.port, timeout=10)


def ask(server, connection=None, **body):
    """Return status, headers and body of one answer."""
    own = connection or connect(server)
    own.request("POST", "/v1/chat/completions", json.dumps({"model": "m", "messages": MESSAGES, **body}))
    answer = own.getresponse()
    found = answer.status, answer.headers, answer.read().decode()
    if connection is None:
        own.close()
    return found


def content(answer):
    return json.loads(answer[2])["choices"][0]["message"]["content"]


def test_a_completion_and_what_was_asked(judge_server):
    server = judge_server({"verdict": "yes"})
    status, headers, body = ask(server, response_format={"type": "json_object"}, temperature=0)
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body) == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": '{"verdict": "yes"}'},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }
    (request,) = server.requests
    assert (request.system, request.user, request.response_format) == ("Judge.", "q: é{0}%s", {"type": "json_object"})
    assert (request.body["temperature"], request.headers["accept-encoding"]) == (0, "identity")
    assert request.at <= time.monotonic()


def test_a_script_is_read_in_order_over_one_connection_and_its_last_answer_repeats(judge_server):
    server = judge_server([rate_limited("2"), rate_limited(http_date(0)), "a", Reply("b", usage=None), html_page(502)])
    connection = connect(server)
    answers = [ask(server, connection) for _ in range(6)]
    connection.close()
    assert [status for status, *_ in answers] == [429, 429, 200, 200, 502, 502]
    assert answers[0][1]["Retry-After"] == "2"
    assert answers[1][1]["Retry-After"].endswith(" GMT")
    assert [content(answer) for answer in answers[2:4]] == ["a", "b"]
    assert "usage" not in json.loads(answers[3][2])
    assert answers[4][1]["Content-Type"] == "text/html; charset=utf-8"
    assert len({request.peer for request in server.requests}) == 1


def test_answers_depend_on_the_request(judge_server):
    server = judge_server(lambda request: two_objects(request.body["seed"], 2))
    assert content(ask(server, seed=1)) == "1\n2"


@pytest.mark.parametrize(
    ("reply", "code"), [(prompt_filter(), "content_filter"), (context_too_long(), "context_length_exceeded")]
)
def test_bad_requests_have_their_codes(judge_server, reply, code):
    status, _, body = ask(judge_server(reply))
    assert (status, json.loads(body)["error"]["code"]) == (400, code)


@pytest.mark.parametrize(
    ("refuses", "asked"),
    [
        ("json_schema:400", {"response_format": {"type": "json_schema", "json_schema": {}}}),
        ("json_schema:500", {"response_format": {"type": "json_schema", "json_schema": {}}}),
        ("json_object:400", {"response_format": {"type": "json_object"}}),
        ("schema:422", {"response_format": {"type": "json_object", "schema": {}}}),
        ("temperature:400", {"temperature": 0}),
    ],
)
def test_parameters_that_a_server_refuses(judge_server, refuses, asked):
    server = judge_server(["first"], refuses=frozenset({refuses}))
    status, _, body = ask(server, **asked)
    what, _, expected = refuses.partition(":")
    assert status == int(expected)
    assert f"{what}'" in json.loads(body)["error"]["message"]
    assert content(ask(server)) == "first"
    assert len(server.requests) == 2


def test_what_is_not_refused_is_answered(judge_server):
    server = judge_server("a", refuses=frozenset({"json_schema:400", "schema:400"}))
    assert content(ask(server, response_format={"type": "json_object"}, temperature=0)) == "a"


def test_wrong_arguments():
    with pytest.raises(ValueError, match="'top_p:400': a server here refuses"):
        JudgeServer("a", refuses=frozenset({"top_p:400"}))
    with pytest.raises(ValueError, match="a script needs an answer"):
        JudgeServer([])


def test_models_and_other_paths(judge_server):
    connection = connect(judge_server("a"))
    found = []
    for path in ("/v1/models", "/v1/embeddings"):
        connection.request("GET", path)
        answer = connection.getresponse()
        found.append((answer.status, list(json.loads(answer.read()))))
    connection.close()
    assert found == [(200, ["object", "data"]), (404, ["error"])]


def test_requests_in_hand_are_counted():
    with ThreadPoolExecutor(4) as pool, JudgeServer(["a", "a", hang()]) as server:
        assert [content(ask(server)) for _ in range(2)] == ["a", "a"]
        assert (server.in_flight, server.max_in_flight) == (0, 1)
        waiting = [pool.submit(ask, server) for _ in range(4)]
        while len(server.requests) < 6:
            time.sleep(0.001)
        assert (server.in_flight, server.max_in_flight) == (4, 4)
    assert all(isinstance(answer.exception(), ConnectionError) for answer in waiting)


def test_a_disconnect_is_no_answer(judge_server):
    with pytest.raises(RemoteDisconnected):
        ask(judge_server(disconnects()))


def test_closing_ends_what_hangs_and_leaves_no_thread():
    before = threading.active_count()
    with ThreadPoolExecutor(1) as pool:
        with JudgeServer(hang()) as server:
            waiting = pool.submit(ask, server)
            while not server.requests:
                time.sleep(0.001)
            assert not waiting.done()
        with pytest.raises(ConnectionError):
            waiting.result(timeout=10)
    assert threading.active_count() == before
    assert server.in_flight == 0


def test_what_an_answer_raises_is_raised_at_the_close():
    def answer(request):
        raise KeyError(request.user)

    with pytest.raises(KeyError, match="q: é"), JudgeServer(answer) as server, pytest.raises(ConnectionError):
        ask(server)
