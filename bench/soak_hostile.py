"""The bad requests of soak.py: damaged, absurd, aborted, or read too slowly. Each must get a well-formed error or a
closed connection, and other requests must not be affected."""
import asyncio
import json

from load_client import Answer, Broken, Connection
from soak_requests import Wrong, check_error, need

PATIENCE = 60  # seconds within which an answer or the end of the connection must come
NEVER = 1 << 70

# ---- bodies --------------------------------------------------------------------------------------------

TEXT_PATHS = ("/v1/chat/completions", "/v1/completions", "/completion")
BODY_PATHS = (*TEXT_PATHS, "/v1/embeddings", "/tokenize", "/detokenize", "/apply-template")

# Invalid values of fields that all three text endpoints have.
WRONG_VALUES = {
    "n": (0, -1, 10**6, 1.5, "2", [], {}, 65, NEVER),
    "max_tokens": (-5, 1 << 63, 1e30, "7", {}, 1.5),
    "temperature": (-1, 1e30, "hot", [], True),
    "top_p": (-0.1, 1.1, "x", NEVER),
    "min_p": (-1, 2, "x"),
    "top_k": (1 << 40, "x", -7, 0.5),
    "repeat_penalty": (0, -1, "x"),
    "repeat_last_n": (-2, "x", NEVER),
    "presence_penalty": (1e9, "x"),
    "frequency_penalty": (-1e9, []),
    "seed": (NEVER, "x", 1.5, []),
    "stop": ([""], "", [1], {}, "x" * 300, ["x"] * 100000, 7),
    "logit_bias": ({"999999999": 1}, {"-1": 1}, {"x": 1}, {"1": 1e9}, {"1": "x"}, "x", [[1]], {"1": NEVER}),
    "stream": ("yes", 1, []),
    "stream_options": (1, "x", []),
    "ignore_eos": (1, "true"),
    "cache_prompt": (0, "x"),
    "routing": ("x", 2),
    "model": (1, []),
    "grammar": ("root ::= " + "(" * 60000, "root ::= \"a\""),
    "json_schema": ({"type": "object"}, "x"),
    "response_format": ({"type": "json_schema", "json_schema": {}}, 7),
    "n_discard": (-1,),
    "best_of": (10**6,),
    "lora": ([{"id": 0, "scale": 1}],),
}
WRONG_PROMPTS = (None, 17, {}, [], [-1], [1 << 31], [1.5], [[]], [NEVER], ["a", {}], [[1], 2], True, [None], [[[1]]])
WRONG_MESSAGES = (None, [], "x", 7, {}, [7], [{}], [None], [{"role": "user"}], [{"role": "alien", "content": "x"}],
                  [{"role": "user", "content": 5}], [{"role": "user", "content": [{"type": "image_url"}]}],
                  [{"role": "user", "content": [{"type": "text"}]}], [{"role": 5, "content": "x"}],
                  [{"role": "user", "content": None}], [{"content": "x"}], [{"role": "tool", "content": "x"}],
                  [{"role": "user", "content": "x"}] * 5000)
WRONG_FOR = {
    "/v1/embeddings": {"input": (*WRONG_PROMPTS, [["a"], [1]]), "encoding_format": ("x", 1), "dimensions": (5, NEVER)},
    "/tokenize": {"content": (None, 5, [], {}), "add_special": (1, "x"), "with_pieces": (NEVER, [])},
    "/detokenize": {"tokens": (None, "x", {}, [-1], [1 << 40], [1.5], ["x"], [[1]], [NEVER])},
    "/apply-template": {"messages": WRONG_MESSAGES[:-1]},
    "/v1/completions": {"prompt": WRONG_PROMPTS, "logprobs": (10**9, -1, "x")},
    "/completion": {"prompt": WRONG_PROMPTS[:-2], "n_probs": (10**9, -1, "x")},
    "/v1/chat/completions": {"messages": WRONG_MESSAGES, "top_logprobs": (10**9, -1, 3), "tools": ([{"type": "x"}], 5),
                             "logprobs": (5, "x")},
}


def good_body(world, path):
    """A valid body."""
    if "chat" in path or path == "/apply-template":
        return {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
    return {"/v1/embeddings": {"input": [1, 2]}, "/tokenize": {"content": "x"},
            "/detokenize": {"tokens": [1]}}.get(path, {"prompt": [1, 2, 3], "max_tokens": 2})


def wrong_value(world, rng, path):
    """A body with one invalid field."""
    fields = dict(WRONG_FOR[path])
    if path in TEXT_PATHS:
        fields.update(WRONG_VALUES)
        too_long = world.ids(rng, world.n_ctx + rng.choice((0, 1, 1000)))
        if path != "/v1/chat/completions":
            fields["prompt"] = (*fields["prompt"], too_long, [world.n_vocab])
    name = rng.choice(sorted(fields))
    value = rng.choice(fields[name])
    body = good_body(world, path)
    if name == "max_tokens":
        body.pop("max_tokens", None)
    return {**body, name: value}


def damaged(world, rng, path):
    """Bytes that are not JSON, or not an object."""
    good = json.dumps(good_body(world, path)).encode()
    return rng.choice((
        lambda: b"", lambda: b"{:", lambda: b"[]", lambda: b"null", lambda: b'"x"', lambda: b"7", lambda: b"{}{}",
        lambda: good[:rng.randrange(len(good))], lambda: good + b"x", lambda: rng.randbytes(rng.randint(1, 3000)),
        lambda: b"[" * 100000, lambda: b'{"a":' * 100000, lambda: b'{"prompt": "\xff\xfe"}', lambda: b"\0" + good,
        lambda: good[:-1] + b', "temperature": NaN}', lambda: good[:-1] + b', "temperature": 1e400}',
        lambda: good[:-1] + b', "x": "\\ud800"}', lambda: good.replace(b":", b";", 1), lambda: b"\xef\xbb\xbf" + good,
    ))()


async def ask_wrong_body(world, rng, note):
    path = rng.choice(BODY_PATHS)
    if rng.random() < 0.6:
        body, statuses = wrong_value(world, rng, path), (400, 501)
    else:
        body, statuses = damaged(world, rng, path), (400,)
    if not world.has_text:
        statuses = (400, 501)
    note(path, body)
    answer = await world.client.ask("POST", path, body)
    if answer.status == 429 and path in (*TEXT_PATHS, "/v1/embeddings"):
        raise Wrong("an invalid request was told to wait")
    if answer.status == 200:
        raise Wrong(f"an invalid request was answered: {answer.body[:300]!r}")
    check_error(answer, statuses)
    return answer.status


# ---- heads ---------------------------------------------------------------------------------------------

def heads(world, rng):
    """Yields name, bytes and the right statuses. None among the statuses means that the data is hardly HTTP, so the
    server may just close the connection or send an error with nothing but a status."""
    host = f"Host: {world.client.address[0]}:{world.client.address[1]}\r\n"
    auth = f"Authorization: Bearer {world.client.key}\r\n" if world.client.key else ""
    post = f"POST /v1/completions HTTP/1.1\r\n{host}{auth}"
    body = '{"prompt": [1, 2], "max_tokens": 1}'
    any_error = (400, 404, 405, 411, 413, 414, 431, 501, 505, None)
    refused = (400, 403, 404, 405)
    yield "random bytes", rng.randbytes(rng.randint(1, 5000)), any_error
    yield "random lines", b"\r\n".join(rng.randbytes(20) for _ in range(20)) + b"\r\n\r\n", any_error
    yield "only ends of lines", b"\r\n" * 3000, any_error
    yield "no version", f"GET /health\r\n{host}\r\n", any_error
    yield "version 9.9", f"GET /health HTTP/9.9\r\n{host}\r\n", any_error
    yield "no Host", "GET /health HTTP/1.1\r\n\r\n", (400, 403, None)
    yield "TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(500), any_error
    yield "two lengths", f"{post}Content-Length: 35\r\nContent-Length: 36\r\n\r\n{body} ", (400, None)
    yield "the same length twice", f"{post}Content-Length: 35\r\nContent-Length: 35\r\n\r\n{body}", (400, None)
    yield "length and chunks", f"{post}Content-Length: 35\r\nTransfer-Encoding: chunked\r\n\r\n23\r\n{body}\r\n0\r\n\r\n", \
        (400, None)
    yield "a size that is none", f"{post}Transfer-Encoding: chunked\r\n\r\nzz\r\n{body}\r\n0\r\n\r\n", (400, None)
    yield "a size below 0", f"{post}Transfer-Encoding: chunked\r\n\r\n-1\r\n{body}\r\n0\r\n\r\n", (400, None)
    yield "a huge size", f"{post}Transfer-Encoding: chunked\r\n\r\n{'f' * 20}\r\n{body}", (400, 413, None)
    yield "a chunk of 4 GB", f"{post}Transfer-Encoding: chunked\r\n\r\nffffffff\r\n{body}", (400, 413, None)
    yield "an unknown encoding", f"{post}Transfer-Encoding: gzip\r\n\r\n{body}", (400, 411, 501, None)
    yield "a length below 0", f"{post}Content-Length: -1\r\n\r\n{body}", (400, None)
    yield "a length that is none", f"{post}Content-Length: 5x\r\n\r\n{body}", (400, None)
    yield "a huge length", f"{post}Content-Length: {'9' * 25}\r\n\r\n{body}", (400, 413, None)
    yield "1 GB", f"{post}Content-Length: {1 << 30}\r\n\r\n{body}", (413,)
    yield "10000 headers", f"GET /health HTTP/1.1\r\n{host}" + "X-A: b\r\n" * 10000 + "\r\n", (400, 413, 431, None)
    yield "a header of 1 MB", f"GET /health HTTP/1.1\r\n{host}X-A: {'a' * (1 << 20)}\r\n\r\n", (400, 413, 431, None)
    yield "a path of 100 kB", f"GET /{'a' * 100000} HTTP/1.1\r\n{host}\r\n", (400, 404, 413, 414, 431, None)
    yield "a header without colon", f"GET /health HTTP/1.1\r\n{host}Nonsense\r\n\r\n", (200, 400, None)
    yield "NUL in a header", f"GET /health HTTP/1.1\r\n{host}X-A: a\0b\r\n\r\n", (200, 400, None)
    for path in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/%00", "//", "//health", "/health/..", "/.", "/a/b",
                 "/slots/0?action=save&filename=..", "/slots/0?action=restore", "/v1", "/\u00e9",
                 "/v1/models/", "/health%00", "/HEALTH", "http://evil.example/health", "*"):
        method = "POST" if "action" in path else "GET"
        yield f"path {path}", f"{method} {path} HTTP/1.1\r\n{host}{auth}\r\n", (*refused, None)
    for method, path in (("DELETE", "/v1/models"), ("GET", "/v1/completions"), ("POST", "/health"), ("TRACE", "/"),
                         ("FOO", "/health"), ("PUT", "/completion"), ("CONNECT", "evil.example:443")):
        yield f"{method} {path}", f"{method} {path} HTTP/1.1\r\n{host}{auth}Content-Length: 0\r\n\r\n", (*refused, 501, None)
    yield "another Host", f"GET /health HTTP/1.1\r\nHost: evil.example\r\n{auth}\r\n", (400, 403)
    yield "two Hosts", f"GET /health HTTP/1.1\r\n{host}Host: evil.example\r\n\r\n", (400, 403, None)
    yield "another Origin", f"GET /props HTTP/1.1\r\n{host}{auth}Origin: http://localhost.evil.com\r\n\r\n", (403,)
    if auth:
        yield "no key", f"GET /props HTTP/1.1\r\n{host}\r\n", (401,)
        yield "a wrong key", f"GET /props HTTP/1.1\r\n{host}Authorization: Bearer x{world.client.key}\r\n\r\n", (401,)
        yield "no scheme", f"GET /props HTTP/1.1\r\n{host}Authorization: {world.client.key}\r\n\r\n", (401,)
        yield "a body without key", f"POST /completion HTTP/1.1\r\n{host}Content-Length: 9000000\r\n\r\n{body}", (401, 413)


async def read_end(c, statuses):
    """Reads an answer with one of these statuses, or the end of the connection if that is right. Returns the status."""
    try:
        async with asyncio.timeout(PATIENCE):
            status, headers = await c.head()
            body = b"".join([piece async for piece in c.pieces(headers)])
    except (Broken, ConnectionError) as why:
        need(None in statuses, f"no answer, but {why or type(why).__name__}")
        return 0
    except TimeoutError:
        raise Wrong(f"neither an answer nor an end of the connection in {PATIENCE} s") from None
    if status in statuses and status < 400:
        return status
    need(status >= 400, f"{status} instead of {statuses}: {body[:200]!r}")
    if None not in statuses or "x-request-id" in headers:
        check_error(Answer(status, headers, body), [s for s in statuses if s])
    else:
        need(status in statuses, f"{status} instead of {statuses}")
    return status


async def ask_wrong_head(world, rng, note):
    name, data, statuses = rng.choice(list(heads(world, rng)))
    data = data.encode() if isinstance(data, str) else data
    note(f"({name})", data)
    c = await Connection.open(world.client.address)
    try:
        try:
            await c.send(data)
            if None in statuses:
                c.half_close()  # so that a server that waits for more data sees the end
        except (ConnectionError, OSError):
            pass  # refused before everything was sent; the answer may still be readable
        return await read_end(c, statuses)
    finally:
        c.close()


async def send_too_much(world, rng, note):
    """Sends a body that is too large, with Content-Length or in chunks. It must be refused, before or after it was sent."""
    size, piece = rng.choice((9 << 20, 12 << 20)), b" " * (1 << 16)
    chunked = rng.random() < 0.5
    note(f"a body of {size} blanks, {'in chunks' if chunked else 'with its length'}", None)
    c = await Connection.open(world.client.address)
    try:
        way = ("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(size))
        await c.send(world.client.bytes_of("POST", "/completion", None, (way, ("Content-Type", "application/json"))))
        try:
            for _ in range(size >> 16):
                await c.send(b"10000\r\n" + piece + b"\r\n" if chunked else piece)
        except (ConnectionError, OSError):
            return 0
        return await read_end(c, (400, 413, None))
    finally:
        c.close()


# ---- clients that disconnect, and slow clients ---------------------------------------------------------

def long_request(world, rng):
    """A stream that takes a while: a long prompt, or a long answer."""
    n = world.n_ctx * 3 // 4 if rng.random() < 0.4 else rng.randint(1, 20)
    return {"prompt": world.ids(rng, n), "n_predict": world.n_ctx - n, "ignore_eos": True, "stream": rng.random() < 0.8,
            "temperature": 1, "seed": rng.randrange(1000), "cache_prompt": rng.random() < 0.5}


def leave(c, rng):
    if rng.random() < 0.5:
        c.close()
    else:
        c.reset()


async def abort(world, rng, note):
    """Disconnects in the head, in the body, immediately after sending, after a while, or in the middle of the answer."""
    request = long_request(world, rng)
    data = world.client.bytes_of("POST", "/completion", request)
    head = data.index(b"\r\n\r\n") + 4
    moment = rng.choice(("in the head", "in the body", "at once", "after a while", "in the answer", "in the answer"))
    note(f"/completion, left {moment}", request)
    c = await Connection.open(world.client.address)
    try:
        await c.send(data[:{"in the head": rng.randrange(1, head), "in the body": rng.randrange(head, len(data))}
                          .get(moment, len(data))])
        if moment == "after a while":
            await asyncio.sleep(rng.uniform(0, 2))
        elif moment == "in the answer":
            async with asyncio.timeout(rng.uniform(0.5, PATIENCE)):
                status, headers = await c.head()
                left = rng.randint(0, 3000)
                async for piece in c.pieces(headers):
                    left -= len(piece)
                    if left < 0:
                        break
    except TimeoutError:
        pass
    finally:
        leave(c, rng)
    return "aborted"


async def half_close(world, rng, note):
    """Closes its own direction after a whole request. Answered or not, the connection must end."""
    request = {**long_request(world, rng), "n_predict": rng.randint(1, 30)}
    request["prompt"] = request["prompt"][:40]
    note("/completion, half closed", request)
    c = await Connection.open(world.client.address)
    try:
        await c.send(world.client.bytes_of("POST", "/completion", request, (("Connection", "close"),)))
        await asyncio.sleep(rng.choice((0, 0.01, 0.2)))
        c.half_close()
        async with asyncio.timeout(PATIENCE):
            while await c.reader.read(1 << 16):
                pass
    except TimeoutError:
        raise Wrong(f"a connection that was half closed is still open after {PATIENCE} s") from None
    except ConnectionError:
        pass  # the server treated it as a disconnect
    finally:
        c.close()
    return "aborted"


async def read_slowly(world, rng, note):
    """Reads a byte a second for a while with a small receive buffer, then the rest or nothing more."""
    request = {**long_request(world, rng), "stream": True, "n_probs": 5}
    note("/completion, read slowly", request)
    c = await Connection.open(world.client.address, receive_buffer=4096)
    try:
        await c.send(world.client.bytes_of("POST", "/completion", request, (("Connection", "close"),)))
        for _ in range(rng.randint(2, 25)):
            await c.reader.read(1)
            await asyncio.sleep(1)
        if rng.random() < 0.5:
            async with asyncio.timeout(PATIENCE):
                while await c.reader.read(1 << 16):
                    pass
    except (TimeoutError, ConnectionError):
        pass
    finally:
        leave(c, rng)
    return "aborted"


async def send_slowly(world, rng, note):
    """Sends a head, a byte a second, and never finishes it."""
    note("a head that comes slowly", None)
    c = await Connection.open(world.client.address)
    try:
        for byte in world.client.bytes_of("GET", "/health")[:rng.randint(1, 20)]:
            await c.send(bytes([byte]))
            await asyncio.sleep(1)
    except ConnectionError:
        pass
    finally:
        leave(c, rng)
    return "aborted"


async def stay_idle(world, rng, note):
    """Keeps many connections open for a while without sending anything."""
    note("idle connections", None)
    idle = [await Connection.open(world.client.address) for _ in range(rng.randint(1, 16))]
    try:
        await asyncio.sleep(rng.uniform(0.5, 12))
    finally:
        for c in idle:
            leave(c, rng)
    return "aborted"
