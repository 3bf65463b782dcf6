"""A client that puts load on a server of this machine. It writes HTTP itself, to control every byte and its time.

It accepts only loopback addresses, and it starts and ends the server that it loads.
"""
import asyncio
import ipaddress
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.parse

HEAD_BYTES = 64 << 10  # an answer with a longer head is invalid
PIECE = 64 << 10


class Broken(Exception):
    """The data received is not an HTTP answer, or not a complete one."""


def address_of(url):
    """(host, port) of a server on this machine; the program ends for any other."""
    parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname
    try:
        local = ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        local = False
    if parts.scheme != "http" or not local or parts.path not in ("", "/"):
        sys.exit(f"{url}: the server must be on this machine, http://127.0.0.1:PORT")
    return host, parts.port or 80


# ---- requests ------------------------------------------------------------------------------------------

def request_bytes(address, method, path, body=None, headers=(), key=None):
    """A whole request. A body that is not bytes is sent as JSON."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}:{address[1]}"]
    if key:
        lines.append(f"Authorization: Bearer {key}")
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")


class Answer:
    def __init__(self, status, headers, body=b""):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        kind = self.headers.get("content-type", "")
        if not kind.startswith("application/json"):
            raise Broken(f"the answer is of type {kind or '(none)'}, not application/json")
        return parse_json(self.body)


def refuse_constant(name):
    raise ValueError(f"{name} is not valid JSON")


def parse_json(data):
    """JSON as in the standard: UTF-8, without NaN and Infinity."""
    try:
        return json.loads(data.decode(), parse_constant=refuse_constant)
    except (ValueError, RecursionError) as why:
        raise Broken(f"invalid JSON ({why}): {data[:200]!r}") from None


class Connection:
    """One connection, and a buffer of data that was read but not used yet."""

    def __init__(self, reader, writer):
        self.reader, self.writer, self.buffer = reader, writer, b""

    @classmethod
    async def open(cls, address, receive_buffer=None):
        s = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        s.setblocking(False)
        if receive_buffer:  # must be set before connecting, when the other side learns of it
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            await asyncio.get_running_loop().sock_connect(s, address)
            limit = {"limit": receive_buffer} if receive_buffer else {}
            return cls(*await asyncio.open_connection(sock=s, **limit))
        except BaseException:
            s.close()
            raise

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    def half_close(self):
        self.writer.write_eof()

    def close(self):
        self.writer.close()

    def reset(self):
        """Closes with a reset, so the other side gets an error instead of a normal end."""
        s = self.writer.get_extra_info("socket")
        if s is not None and s.fileno() >= 0:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    # ---- reading -----------------------------------------------------------------------------------

    async def more(self):
        data = await self.reader.read(PIECE)
        if not data:
            raise Broken("the connection ended before the answer did")
        self.buffer += data

    async def until(self, end, most=HEAD_BYTES):
        """Bytes up to `end`, which is removed."""
        while (at := self.buffer.find(end)) < 0:
            if len(self.buffer) > most:
                raise Broken(f"{most} bytes without {end!r}")
            await self.more()
        found, self.buffer = self.buffer[:at], self.buffer[at + len(end):]
        return found

    async def exactly(self, n):
        while len(self.buffer) < n:
            await self.more()
        found, self.buffer = self.buffer[:n], self.buffer[n:]
        return found

    async def head(self):
        """Status and headers of the next answer. The names of headers are in lower case."""
        first, *rest = (await self.until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        match = re.fullmatch(r"HTTP/1\.[01] (\d{3})(?: .*)?", first)
        if not match:
            raise Broken(f"invalid status line: {first[:100]!r}")
        headers = {}
        for line in rest:
            name, colon, value = line.partition(":")
            if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
                raise Broken(f"invalid header: {line[:100]!r}")
            headers[name.lower()] = value.strip()
        if {"content-length", "transfer-encoding"} <= headers.keys():
            raise Broken("the answer has Content-Length and Transfer-Encoding")
        return int(match[1]), headers

    async def pieces(self, headers):
        """The body in the pieces in which it arrives."""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while size := await self.chunk_size():
                yield await self.exactly(size)
                if await self.exactly(2) != b"\r\n":
                    raise Broken("a chunk does not end where it should")
            while await self.until(b"\r\n"):
                pass
        elif "content-length" in headers:
            left = int(headers["content-length"])
            while left > 0:
                if not self.buffer:
                    await self.more()
                piece = await self.exactly(min(left, len(self.buffer)))
                left -= len(piece)
                yield piece
        else:
            raise Broken("the answer has no length")

    async def chunk_size(self):
        line = await self.until(b"\r\n")
        if not re.fullmatch(rb"[0-9a-fA-F]{1,8}(;.*)?", line):
            raise Broken(f"invalid size of a chunk: {line[:40]!r}")
        return int(line.partition(b";")[0], 16)

    async def answer(self, method="GET"):
        """The whole next answer."""
        status, headers = await self.head()
        if method == "HEAD" or status in (204, 304):
            return Answer(status, headers)
        return Answer(status, headers, b"".join([piece async for piece in self.pieces(headers)]))

    async def events(self, headers):
        """(time, data) of Server-Sent Events; comments are skipped."""
        if not headers.get("content-type", "").startswith("text/event-stream"):
            raise Broken(f"a stream of type {headers.get('content-type')}")
        rest = b""
        async for piece in self.pieces(headers):
            now = time.perf_counter()
            *whole, rest = (rest + piece).split(b"\n\n")
            for event in whole:
                if event.startswith(b"data: ") and b"\n" not in event:
                    yield now, event[6:]
                elif not event.startswith(b":"):
                    raise Broken(f"invalid event: {event[:100]!r}")
        if rest:
            raise Broken(f"the stream ends within an event: {rest[:100]!r}")


class Client:
    """Sends requests to one server, with a key if the server needs one."""

    def __init__(self, address, key=None):
        self.address, self.key = address, key

    def bytes_of(self, method, path, body=None, headers=()):
        return request_bytes(self.address, method, path, body, headers, self.key)

    async def ask(self, method, path, body=None, headers=()):
        """Sends a request on its own connection and returns the whole answer."""
        c = await Connection.open(self.address)
        try:
            await c.send(self.bytes_of(method, path, body, (("Connection", "close"), *headers)))
            return await c.answer(method)
        finally:
            c.close()

    async def get(self, path):
        answer = await self.ask("GET", path)
        if answer.status != 200:
            raise Broken(f"GET {path}: {answer.status} {answer.body[:200]!r}")
        return answer.json()

    async def metrics(self):
        """Numbers of /metrics by name, without the prefix dsmoe_."""
        answer = await self.ask("GET", "/metrics")
        if answer.status != 200:
            raise Broken(f"GET /metrics: {answer.status}")
        return parse_metrics(answer.body)


SAMPLE = re.compile(r'dsmoe_([a-z0-9_]+(?:\{(?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)+\})?) (\S+)')


def parse_metrics(text):
    """Numbers of a text in Prometheus' format; raises Broken for any other line."""
    found = {}
    for line in text.decode().splitlines():
        if re.fullmatch(r"# (HELP|TYPE) dsmoe_[a-z0-9_]+ .+", line):
            continue
        match = SAMPLE.fullmatch(line)
        if not match or match[1] in found:
            raise Broken(f"an invalid or repeated line of /metrics: {line[:200]!r}")
        found[match[1]] = float(match[2])
    return found


# ---- the server ----------------------------------------------------------------------------------------

class Server:
    """`dsmoe serve` as a child process."""

    def __init__(self, program, model, options):
        self.messages = tempfile.TemporaryFile()
        words = [program, "serve", "-m", model, "--port", "0", *options]
        self.child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=self.messages)
        url = self.child.stdout.readline().decode().strip()  # printed when the model is loaded
        if not url:
            self.child.wait()
            sys.exit(f"{' '.join(words)}\nended with {self.child.returncode}:\n{self.tail()}")
        self.url, self.pid = url, self.child.pid

    def tail(self):
        self.messages.seek(0)
        return self.messages.read()[-4000:].decode(errors="replace")

    def memory(self):
        """Its resident memory in bytes: all of it, and the part that is not a mapped file."""
        with open(f"/proc/{self.pid}/status") as file:
            lines = dict(line.split(":", 1) for line in file)
        kib = {name: int(lines[name].split()[0]) for name in ("VmRSS", "RssFile")}
        return 1024 * kib["VmRSS"], 1024 * (kib["VmRSS"] - kib["RssFile"])

    def n_files(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def is_alive(self):
        return self.child.poll() is None

    def end(self, seconds=60):
        """Sends SIGTERM and returns the exit code, or None if the server had to be killed."""
        if self.is_alive():
            self.child.send_signal(signal.SIGTERM)
        try:
            code = self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
            code = None
        self.child.stdout.close()
        return code


def add_arguments(p):
    p.add_argument("program", metavar="DSMOE", help="the command, build/dsmoe")
    p.add_argument("model", metavar="MODEL", help="a folder or a .gguf file")
    p.add_argument("--url", help="a server that already runs on this machine, http://127.0.0.1:PORT")
    p.add_argument("--api-key", metavar="KEY", help="the key that the server of --url needs")
    p.add_argument("-t", "--threads", type=int, help="threads of the server (all processors)")
    p.add_argument("--seed", type=int, default=0, help="another seed gives other prompts (0)")
