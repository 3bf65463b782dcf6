"""The valid requests of soak.py, and the checks for every answer.

A case is a prompt with all settings that determine its text. It is sent again and again in different forms (streamed or
whole, OpenAI's or llama.cpp's API, with logprobs or without, from the cache or not) and together with different other
requests. Its texts must stay the same as the first time.
"""
import asyncio
import base64
import math
import random
import struct

from load_client import Answer, Connection, parse_json, parse_metrics

WORDS = ("expert", "router", "the", "a", "mixture", "of", "token", "gate", "läuft", "schön", "模型", "专家", "🙂", "e\u0301",
         "\u200d", "\n", "\t", "0", "3.14", "x=1;", "<b>", "\"quoted\"", "\\", "Привет", "<|begin_of_sentence|>")
SHARED = 3  # number of beginnings that several cases share


class Wrong(Exception):
    """The server did something wrong."""


def need(condition, what):
    if not condition:
        raise Wrong(what)


class World:
    """The data from which all requests are made: the server's sizes, and cases that depend only on the seed."""

    def __init__(self, client, models, props, seed, n_cases=60):
        self.client, self.model = client, models["data"][0]["id"]
        self.n_vocab, self.n_ctx = models["data"][0]["meta"]["n_vocab"], props["n_ctx"]
        self.n_embd, self.moe = models["data"][0]["meta"]["n_embd"], props["moe"]
        self.has_text = props["eos_token"] is not None  # every tokenizer has one
        self.answers = {}  # the first answers to cases, inputs and texts
        rng = random.Random(f"{seed}/cases")
        self.shared = [self.ids(rng, self.n_ctx // 3) for _ in range(SHARED)]
        self.cases = [self.make_case(rng, i) for i in range(n_cases)]

    def ids(self, rng, n):
        return [rng.randrange(self.n_vocab) for _ in range(n)]

    def text(self, rng, n):
        return " ".join(rng.choice(WORDS) for _ in range(n))

    def make_prompt(self, rng, i):
        """A prompt. A tenth of them nearly fill the context, and a fifth share their beginning with others."""
        kind = i % 10
        if kind == 0:
            return self.ids(rng, self.n_ctx - rng.randint(1, 40))
        if kind in (1, 2):
            return self.shared[i % SHARED] + self.ids(rng, rng.randint(0, 20))
        if kind in (3, 4, 5) and self.has_text:
            return self.text(rng, rng.randint(1, 40))
        if kind == 6:  # several at once
            return [self.ids(rng, rng.randint(1, 60)) for _ in range(rng.randint(2, 3))]
        return self.ids(rng, rng.randint(1, 60))

    def make_case(self, rng, i):
        chat = self.has_text and i % 4 == 3
        fields = {"max_tokens": rng.choice((0, 1, 2, 8, 16, 24, 32, 48)), "seed": rng.randrange(1 << 40),
                  "temperature": rng.choice((0, 0.5, 1, 1.7))}
        for name, values in (("top_k", (1, 40)), ("top_p", (0.5, 0.95)), ("min_p", (0.05,)), ("n", (2, 3)),
                             ("repeat_penalty", (1.3,)), ("presence_penalty", (0.5,)), ("ignore_eos", (True,)),
                             ("stop", ("e", ["ab", " "], ["\u00e9", "zzzz", "qu"])), ("logit_bias", ({"5": -100},))):
            if rng.random() < 0.25:
                fields[name] = rng.choice(values)
        if not chat:
            return dict(number=i, kind="text", prompt=self.make_prompt(rng, i), fields=fields)
        messages = [{"role": "user", "content": self.text(rng, rng.randint(0, 30))}]
        if rng.random() < 0.5:
            messages.insert(0, {"role": "system", "content": [{"type": "text", "text": self.text(rng, 3)}]})
        return dict(number=i, kind="chat", messages=messages, fields=fields)

    def remember(self, key, value, what):
        """Checks that the value is the same as the first time."""
        first = self.answers.setdefault(key, value)
        need(first == value, f"{what} differs from the first time: {first!r:.600} and now {value!r:.600}")


# ---- an answer in any form -----------------------------------------------------------------------------

class Form:
    """The form in which a case is sent this time. Answers are converted to texts and the reasons why they ended."""

    def __init__(self, world, rng, case):
        self.world, self.case = world, case
        f = self.fields = dict(case["fields"])
        prompt = case.get("prompt")
        self.n_prompts = len(prompt) if isinstance(prompt, list) and isinstance(prompt[0], list) else 1
        self.n = f.get("n", 1) * self.n_prompts  # choices
        self.stream = rng.random() < 0.5
        self.native = case["kind"] == "text" and self.n == 1 and rng.random() < 0.4
        self.path = "/completion" if self.native else f"/v1/{'chat/' if case['kind'] == 'chat' else ''}completions"
        body = {"stream": self.stream, "cache_prompt": rng.random() < 0.7, **f}
        self.routing = self.stream and self.n == 1 and rng.random() < 0.2
        self.logprobs = rng.choice((1, 3, 20)) if rng.random() < 0.25 else 0
        self.usage = not self.native and self.stream and rng.random() < 0.5
        self.add_options(body, rng)
        if case["kind"] == "chat":
            body["messages"] = case["messages"]
        else:
            body["prompt"] = case["prompt"]
        self.body = body

    def add_options(self, body, rng):
        if self.routing:
            body["routing"] = True
        if self.usage:
            body["stream_options"] = {"include_usage": True}
        if self.native:
            body["return_tokens"] = True
            body["n_probs"] = self.logprobs
        elif self.logprobs and self.case["kind"] == "chat":
            body.update(logprobs=True, top_logprobs=self.logprobs)
        elif self.logprobs:
            body["logprobs"] = self.logprobs
        if rng.random() < 0.2:
            body["timings_per_token"] = True
        if rng.random() < 0.2:
            body.update(model="whatever", user=None, unknown_field={"a": [1]})

    @property
    def n_prompt(self):
        """Number of tokens of the prompt, if it is known without the tokenizer."""
        prompt = self.case.get("prompt")
        if self.n_prompts > 1:
            return sum(map(len, prompt))
        return len(prompt) if isinstance(prompt, list) else None

    def check_end(self, texts, ends):
        """Checks what must hold for every text, and that it is the same as the first time."""
        stop = self.fields.get("stop", [])
        for text in texts:
            for s in [stop] if isinstance(stop, str) else stop:
                need(s not in text, f"the text contains its stop text {s!r}: {text!r:.300}")
        need(all(e in ("stop", "length") for e in ends), f"finish_reason {ends}")
        if self.fields["max_tokens"] == 0:
            need(not any(texts), f"0 tokens were requested, but there is text: {texts!r:.300}")
        self.world.remember(f"case {self.case['number']}", list(zip(texts, ends)),
                            f"the answer to case {self.case['number']}")

    def check_usage(self, u):
        need(isinstance(u, dict), f"usage is {u!r:.200}")
        n, written = u["prompt_tokens"], u["completion_tokens"]
        need(u["total_tokens"] == n + written, f"usage does not add up: {u}")
        need(0 <= u["prompt_tokens_details"]["cached_tokens"] <= n, f"cached_tokens: {u}")
        need(self.n_prompt in (None, n), f"prompt_tokens is {n}, not {self.n_prompt}")
        need(0 <= written <= self.n * self.fields["max_tokens"], f"completion_tokens: {u}")
        return written

    def check_timings(self, t):
        need(isinstance(t, dict), f"timings are {t!r:.200}")
        need(all(isinstance(v, (int, float)) and v >= 0 for v in t.values()), f"timings: {t}")
        need(self.n_prompts > 1 or self.n_prompt in (None, t["cache_n"] + t["prompt_n"]),
             f"cache_n + prompt_n is not {self.n_prompt}: {t}")
        return t["predicted_n"]


def check_error(answer, statuses=None):
    """Checks the form that every error must have."""
    need(answer.headers.get("x-request-id"), f"{answer.status} has no x-request-id")
    error = answer.json().get("error")
    need(isinstance(error, dict) and {"message", "type", "code", "param"} <= error.keys(), f"error {error!r:.300}")
    need(error["code"] == answer.status, f"code {error['code']!r} in an answer with {answer.status}")
    need(isinstance(error["message"], str) and error["message"], "an error without a message")
    need("\n" not in error["message"], f"a message of several lines: {error['message']!r:.300}")
    need(isinstance(error["type"], str) and error["type"], "an error without a type")
    need(error["param"] is None or isinstance(error["param"], str), f"param {error['param']!r:.100}")
    if answer.status == 429:
        need(answer.headers.get("retry-after"), "429 without Retry-After")
    need(statuses is None or answer.status in statuses,
         f"{answer.status} instead of {' or '.join(map(str, statuses or ()))}: {error['message'][:300]}")


# ---- whole answers -------------------------------------------------------------------------------------

def check_logprobs(form, choice_logprobs, text, end):
    """Checks the logprobs of the tokens, and that the tokens' bytes are those of the text."""
    if not form.logprobs or not form.fields["max_tokens"]:
        return
    if choice_logprobs is None:
        need(not text, "logprobs were asked for, but are null")
        return
    if form.case["kind"] == "text" and not form.native:
        lists = [choice_logprobs[k] for k in ("tokens", "token_logprobs", "top_logprobs", "text_offset")]
        need(len({len(x) for x in lists}) == 1, "lists of logprobs have different lengths")
        need(all(p <= 1e-6 for p in lists[1]), f"a logprob above 0: {max(lists[1])}")
        return
    items = choice_logprobs if form.native else choice_logprobs["content"]
    joined = b"".join(bytes(item["bytes"]) for item in items)
    for item in items:
        tops = [t["logprob"] for t in item["top_logprobs"]]
        need(item["logprob"] <= 1e-6 and len(tops) <= form.logprobs, f"logprobs of a token: {item!r:.300}")
        need(tops == sorted(tops, reverse=True), f"top_logprobs are not in order: {tops}")
    try:
        whole = joined.decode()
    except UnicodeDecodeError:
        return  # the text ends within a character
    need(whole == text if end == "length" else whole.startswith(text), f"logprobs are of {whole!r:.200}, not {text!r:.200}")


def texts_of_openai(form, data):
    chat = form.case["kind"] == "chat"
    need(data["object"] == ("chat.completion" if chat else "text_completion"), f"object {data['object']!r}")
    choices = sorted(data["choices"], key=lambda c: c["index"])
    need([c["index"] for c in choices] == list(range(form.n)), f"indices {[c['index'] for c in choices]}")
    texts = [c["message"]["content"] if chat else c["text"] for c in choices]
    need(not chat or all(c["message"]["role"] == "assistant" for c in choices), "another role than assistant")
    ends = [c["finish_reason"] for c in choices]
    for choice, text, end in zip(choices, texts, ends):
        check_logprobs(form, choice.get("logprobs"), text, end)
    written = form.check_usage(data["usage"])
    need(form.check_timings(data["timings"]) <= written, "timings have more tokens than usage")
    if set(ends) == {"length"} and form.n_prompt and form.n_prompt + form.fields["max_tokens"] <= form.world.n_ctx:
        need(written == form.n * form.fields["max_tokens"], f"{written} tokens, but the end is the limit")
    return texts, ends


END_OF_NATIVE = {"eos": "stop", "word": "stop", "limit": "length"}


def texts_of_native(form, data, text=None, tokens=None):
    """Texts of a whole answer, or of the last chunk of a stream with the text and tokens of the chunks before it."""
    need(data["stop"] is True and data["truncated"] is False, "the answer is not at its end")
    need(data["stop_type"] in END_OF_NATIVE, f"stop_type {data['stop_type']!r}")
    stop = form.fields.get("stop", [])
    if data["stop_type"] == "word":
        need(data["stopping_word"] in ([stop] if isinstance(stop, str) else stop), f"stopped by {data['stopping_word']!r}")
    need(form.n_prompt in (None, data["tokens_evaluated"]), f"tokens_evaluated {data['tokens_evaluated']}")
    need(0 <= data["tokens_cached"] <= data["tokens_evaluated"], f"tokens_cached {data['tokens_cached']}")
    need(form.check_timings(data["timings"]) == data["tokens_predicted"] <= form.fields["max_tokens"], "tokens_predicted")
    end = END_OF_NATIVE[data["stop_type"]]
    if text is None:
        text, tokens = data["content"], data["tokens"]
        check_logprobs(form, data.get("completion_probabilities"), text, end)
    need(len(tokens) <= data["tokens_predicted"], f"{len(tokens)} tokens, predicted {data['tokens_predicted']}")
    need(len(tokens) == data["tokens_predicted"] or data["stop_type"] != "limit", "tokens are missing")
    return [text], [end]


# ---- streams -------------------------------------------------------------------------------------------

class Routing:
    """The tokens of a stream with their experts, in order of positions."""

    def __init__(self, form):
        self.form, self.next, self.ended = form, None, False

    def take(self, entries):
        moe = self.form.world.moe
        for e in entries:
            need(self.next in (None, e["position"]), f"routing of position {e['position']} after {self.next}")
            need(not self.ended, "routing after the last token's routing")
            self.next = e["position"] + 1
            self.ended = e["experts"] == []
            need(len(e["experts"]) == len(e["weights"]) and len(e["experts"]) in (0, moe["n_layers"]),
                 f"routing of {len(e['experts'])} layers")
            for experts, weights in zip(e["experts"], e["weights"]):
                need(len(experts) == len(weights) == len(set(experts)) == moe["num_experts_per_tok"], f"experts {experts}")
                need(all(0 <= x < moe["n_routed_experts"] for x in experts), f"experts {experts}")
                need(all(0 <= w <= 1 for w in weights) and weights == sorted(weights, reverse=True), f"weights {weights}")


async def texts_of_native_stream(form, c, headers):
    text, tokens, last, routing = "", [], None, Routing(form)
    async for _, data in c.events(headers):
        need(last is None, "events after the last one")
        chunk = parse_json(data)
        need("error" not in chunk, f"an error in the middle of a stream: {data[:300]!r}")
        text += chunk["content"]
        tokens += chunk["tokens"]
        routing.take(chunk.get("routing", []))
        last = chunk if chunk["stop"] else None
    need(last is not None, "the stream ends without its last event")
    return texts_of_native(form, last, text, tokens)


class OpenaiStream:
    """Chunks of OpenAI's form, one after the other."""

    def __init__(self, form):
        self.form, self.chat = form, form.case["kind"] == "chat"
        self.id, self.usage, self.done, self.routing = None, None, False, Routing(form)
        self.texts, self.ends, self.begun = [""] * form.n, [None] * form.n, [False] * form.n

    def take(self, data):
        need(not self.done, "an event after [DONE]")
        if data == b"[DONE]":
            self.done = True
            return
        chunk = parse_json(data)
        need("error" not in chunk, f"an error in the middle of a stream: {data[:300]!r}")
        need(self.id in (None, chunk["id"]), "another id in the same stream")
        self.id = chunk["id"]
        need(chunk["object"] == ("chat.completion.chunk" if self.chat else "text_completion"), f"object {chunk['object']!r}")
        need(self.usage is None, "a chunk after the chunk with usage")
        self.routing.take(chunk.get("routing", []))
        for choice in chunk["choices"]:
            self.take_choice(choice, chunk)
        if chunk.get("usage") is not None:
            need(chunk["choices"] == [] and all(self.ends), "usage before the end of all choices")
            self.usage = self.form.check_usage(chunk["usage"])

    def take_choice(self, choice, chunk):
        i = choice["index"]
        need(isinstance(i, int) and 0 <= i < self.form.n, f"index {i!r}")
        need(self.ends[i] is None, "text after finish_reason")
        end = self.ends[i] = choice["finish_reason"]
        if self.chat:
            delta = choice["delta"]
            if not self.begun[i]:
                need(delta == {"role": "assistant", "content": ""} and end is None, f"the first chunk has {delta}")
            need(end is None or delta == {}, f"the last chunk has {delta}")
            self.texts[i] += delta.get("content", "")
        else:
            self.texts[i] += choice["text"]
        self.begun[i] = True
        if end is not None:
            self.form.check_timings(chunk["timings"])


async def texts_of_openai_stream(form, c, headers):
    s = OpenaiStream(form)
    async for _, data in c.events(headers):
        s.take(data)
    need(s.done, "the stream ends without [DONE]")
    need(all(s.ends), f"choices without an end: {s.ends}")
    need((s.usage is not None) == form.usage, "usage was requested and is missing, or the other way round")
    return s.texts, s.ends


# ---- requests ------------------------------------------------------------------------------------------

async def read_answer(form, c):
    """Reads and checks an answer. Returns its status."""
    status, headers = await c.head()
    need(headers.get("x-request-id"), f"{status} has no x-request-id")
    if status == 200 and form.stream:
        reader = texts_of_native_stream if form.native else texts_of_openai_stream
        form.check_end(*await reader(form, c, headers))
        return status
    body = b"".join([piece async for piece in c.pieces(headers)])
    answer = Answer(status, headers, body)
    if status == 200:
        data = answer.json()
        form.check_end(*(texts_of_native if form.native else texts_of_openai)(form, data))
    else:
        check_error(answer, (429,))
    return status


async def ask_case(world, rng, note):
    form = Form(world, rng, rng.choice(world.cases))
    note(form.path, form.body)
    c = await Connection.open(world.client.address)
    try:
        await c.send(world.client.bytes_of("POST", form.path, form.body, (("Connection", "close"),)))
        return await read_answer(form, c)
    finally:
        c.close()


async def ask_in_turn(world, rng, note):
    """Several requests on one connection, one after the other or all sent at once. An invalid one among them must not
    affect the others."""
    forms = [Form(world, rng, rng.choice(world.cases)) for _ in range(rng.randint(2, 4))]
    wrong, at_once = rng.random() < 0.5, rng.random() < 0.4
    parts = [world.client.bytes_of("POST", f.path, f.body) for f in forms]
    if wrong:
        parts.insert(1, world.client.bytes_of("POST", forms[1].path, b'{"prompt": '))
        forms.insert(1, None)
    note(f"{len(parts)} on one connection{' at once' if at_once else ''}", b"".join(parts))
    c = await Connection.open(world.client.address)
    try:
        if at_once:
            await c.send(b"".join(parts))
        for part, form in zip(parts, forms):
            if not at_once:
                await c.send(part)
            if form:
                status = await read_answer(form, c)
            else:
                check_error(await c.answer(), (400,))
    finally:
        c.close()
    return status


async def ask_embedding(world, rng, note):
    """Embeddings of one of few inputs, so that inputs repeat. A vector has length 1 and is the same every time."""
    i = rng.randrange(12)
    own = random.Random(f"embedding {i}")
    one = [lambda: world.ids(own, own.randint(1, 80))] + ([lambda: world.text(own, own.randint(1, 20))] * world.has_text)
    make = own.choice(one)
    inputs = make() if i % 3 else [make() for _ in range(own.randint(1, 4))]
    n = 1 if i % 3 else len(inputs)
    body = {"input": inputs, "encoding_format": rng.choice(("float", "base64"))}
    note("/v1/embeddings", body)
    answer = await world.client.ask("POST", "/v1/embeddings", body)
    if answer.status != 200:
        check_error(answer, (429,))
        return answer.status
    data = answer.json()
    need([d["index"] for d in data["data"]] == list(range(n)), f"{len(data['data'])} embeddings instead of {n}")
    vectors = [d["embedding"] for d in data["data"]]
    if body["encoding_format"] == "base64":
        vectors = [list(struct.unpack(f"<{world.n_embd}f", base64.b64decode(v, validate=True))) for v in vectors]
    for v in vectors:
        need(len(v) == world.n_embd and abs(math.hypot(*v) - 1) < 1e-3, f"an embedding of length {math.hypot(*v)}")
    world.remember(f"embedding {i} as {body['encoding_format']}", vectors, "the embedding")
    first = world.answers.setdefault(f"embedding {i}", vectors)
    need(all(abs(x - y) < 1e-6 for v, w in zip(first, vectors) for x, y in zip(v, w)), "another embedding as base64")
    need(data["usage"]["prompt_tokens"] == data["usage"]["total_tokens"] > 0, f"usage {data['usage']}")
    return answer.status


async def ask_tokens(world, rng, note):
    """Converts text to tokens and back, or a conversation to its prompt."""
    text = world.text(rng, rng.randint(0, 60))
    path, body = "/tokenize", {"content": text, "with_pieces": rng.random() < 0.5, "parse_special": rng.random() < 0.5}
    if rng.random() < 0.2:
        path, body = "/apply-template", {"messages": [{"role": "user", "content": text}]}
    note(path, body)
    answer = await world.client.ask("POST", path, body)
    if not world.has_text:
        check_error(answer, (400, 501))
        return answer.status
    need(answer.status == 200, f"{path}: {answer.status} {answer.body[:300]!r}")
    data = answer.json()
    if path == "/apply-template":
        need(text in data["prompt"], f"the prompt is without its text: {data['prompt']!r:.300}")
        return 200
    ids = [t["id"] if body["with_pieces"] else t for t in data["tokens"]]
    if body["with_pieces"]:
        pieces = b"".join(t["piece"].encode() if isinstance(t["piece"], str) else bytes(t["piece"]) for t in data["tokens"])
        need(pieces.decode() == text, f"pieces are {pieces!r:.300}")
    note("/detokenize", {"tokens": ids})
    back = await world.client.ask("POST", "/detokenize", {"tokens": ids})
    need(back.status == 200 and back.json()["content"] == text, f"{text!r:.200} comes back as {back.body[:300]!r}")
    return back.status


async def ask_info(world, rng, note):
    """Information about the server, with several requests on one connection."""
    c = await Connection.open(world.client.address)
    try:
        for _ in range(rng.randint(1, 5)):
            path = rng.choice(("/health", "/props", "/slots", "/metrics", "/v1/models", "/"))
            method = rng.choice(("GET", "GET", "GET", "HEAD"))
            note(f"{method} {path}", None)
            await c.send(world.client.bytes_of(method, path))
            answer = await c.answer(method)
            need(answer.status == 200, f"{method} {path}: {answer.status} {answer.body[:300]!r}")
            need(answer.headers.get("x-request-id"), f"{method} {path} has no x-request-id")
            if method == "GET":
                check_info(world, path, answer)
    finally:
        c.close()
    return 200


def check_info(world, path, answer):
    if path == "/metrics":
        found = parse_metrics(answer.body)
        for name in ("pass_tokens", "time_to_first_token_seconds", "inter_token_seconds", "queue_seconds"):
            buckets = [v for k, v in found.items() if k.startswith(f"{name}_bucket")]
            need(buckets == sorted(buckets) and buckets[-1] == found[f"{name}_count"], f"{name}: {buckets}")
        need(found["kv_pages_used"] + found["kv_pages_kept"] <= found["kv_pages"], "more pages than there are")
    elif path == "/health":
        need(answer.json() == {"status": "ok"}, f"/health: {answer.body[:200]!r}")
    elif path == "/slots":
        for s in answer.json():
            need(s["state"] in ("idle", "prompt", "decode", "paused"), f"slot {s}")
            need(0 <= s["n_prompt_done"] <= s["n_prompt"] <= world.n_ctx, f"slot {s}")
    elif path != "/":
        answer.json()


async def watch_routing(world, note, seconds):
    """Watches GET /routing for a while."""
    note("GET /routing", None)
    c = await Connection.open(world.client.address)
    try:
        await c.send(world.client.bytes_of("GET", "/routing"))
        status, headers = await c.head()
        need(status == 200, f"GET /routing: {status}")
        async with asyncio.timeout(seconds):
            async for _, data in c.events(headers):
                check_crowd(world, parse_json(data))
    except TimeoutError:
        return 200
    finally:
        c.close()
    raise Wrong("GET /routing ended by itself")


def check_crowd(world, e):
    moe = world.moe
    need(e["passes"] > 0 and e["rows"] > 0, f"an empty event: {e['passes']} passes, {e['rows']} rows")
    need(len(e["distinct"]) == len(e["load"]) == moe["n_layers"], "layers of /routing")
    need(all(moe["num_experts_per_tok"] <= d <= moe["n_routed_experts"] for d in e["distinct"]), f"distinct {e['distinct']}")
    need(all(len(row) == moe["n_routed_experts"] for row in e["load"]), "experts of /routing")
