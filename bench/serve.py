#!/usr/bin/python3
"""Measures `dsmoe serve` with many clients, and compares it with the same model without a server in the same run.

    bench/serve.py build/dsmoe moe-16b-q4_k.gguf

Every stream has its own random prompt. The same prompt for all would choose the same experts and give results that
are too good. There are four parts, each with a target:

streams   total tokens/s of 1, 4, 16 and 64 streams while all of them generate, compared with dsmoe bench model
          --sequences, which takes turns with the server. Both are the best of all windows of 0.4 s. Also the time to
          the first token (TTFT), between tokens (ITL), and per token after the first (TPOT).
long      16 streams generate and a long prompt arrives: how much longer they wait for a token while it is read.
short     A short prompt arrives while a long one is being read: the number of passes until its first token.
watching  tokens/s of 16 streams when no client watches, when one watches GET /routing, and when one stream or
          all of them ask for their routing.

A stream is POST /completion with token ids. If a token ends in the middle of a character, its text comes with a
later token, and the time between the two pieces counts as two equal gaps. The server's own counters must agree with
the answers. The share of a processor that this client used is shown, because the server cannot use it.
"""
import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True  # keeps the source folder clean
import load_client  # noqa: E402

STRETCH = 0.4  # seconds, as in dsmoe bench model --sequences
BARS = {"streams": 0.9, "long": 3.0, "short": 3, "watching": 0.1}
PARTS = ("streams", "long", "short", "watching")


def numbers(text):
    found = [int(word) for word in text.split(",") if word]
    if any(n < 1 for n in found):
        raise ValueError(text)
    return found


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    load_client.add_arguments(p)
    p.add_argument("--streams", type=numbers, default="1,4,16,64", metavar="LIST",
                   help="numbers of streams (1,4,16,64)")
    p.add_argument("--others", type=int, default=16, help="streams that run during a long prompt or are watched (16)")
    p.add_argument("--long", type=int, default=4096, metavar="N", help="tokens of the long prompt (4096)")
    p.add_argument("-p", "--n-prompt", type=int, default=32, help="tokens of each other prompt (32)")
    p.add_argument("-n", "--n-gen", type=int, default=64,
                   help="tokens of each answer (64), plus the number of streams that run together")
    p.add_argument("--temp", type=float, default=0, metavar="T", help="temperature (0)")
    p.add_argument("--rounds", type=int, default=3, help="rounds of each measurement (3)")
    p.add_argument("--seconds", type=float, default=5, help="seconds for each run of dsmoe bench model (5)")
    p.add_argument("--parts", default=",".join(PARTS), help="parts to run (%(default)s)")
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    a.parts = a.parts.split(",")
    if not set(a.parts) <= set(PARTS) or a.rounds < 1 or a.others < 1 or a.n_gen < 2:
        p.error("nothing to measure")
    return a


# ---- a stream ------------------------------------------------------------------------------------------

class Trace:
    """What a stream observed: when it sent its request, and how many tokens it had at which times."""

    def __init__(self):
        self.asked, self.points, self.ended, self.n_prompt, self.n_wanted = None, [], False, 0, 0

    @property
    def n(self):
        return self.points[-1][1] if self.points else 0

    @property
    def ttft(self):
        return self.points[0][0] - self.asked

    @property
    def tpot(self):
        return (self.points[-1][0] - self.points[0][0]) / max(1, self.n - self.points[0][1])

    def gaps(self, begin=float("-inf"), end=float("inf")):
        """Seconds between tokens that arrived after `begin`, up to `end`."""
        found = []
        for (before, n_before), (moment, n) in zip(self.points, self.points[1:]):
            if begin < moment <= end and n > n_before:
                found += [(moment - before) / (n - n_before)] * (n - n_before)
        return found

    def count(self, begin, end):
        """Number of tokens that arrived after `begin`, up to `end`."""
        found, before = 0, 0
        for moment, n in self.points:
            found += n - before if begin < moment <= end else 0
            before = n
        return found


class Bench:
    """The server, the source of random prompts, and checks that the answers add up."""

    def __init__(self, a, client, n_vocab):
        self.a, self.client, self.n_vocab = a, client, n_vocab
        self.random = random.Random(a.seed)
        self.checks, self.client_share = [], 0.0

    def ids(self, n):
        return [self.random.randrange(self.n_vocab) for _ in range(n)]

    def request(self, n_prompt, n_gen, **more):
        return {"prompt": self.ids(n_prompt), "n_predict": n_gen, "stream": True, "ignore_eos": True,
                "temperature": self.a.temp, "seed": self.random.randrange(1 << 30), **more}

    async def write(self, request, trace=None, start=None):
        """Runs one stream from its connection to its end."""
        trace = trace or Trace()
        trace.n_prompt, trace.n_wanted = len(request["prompt"]), request["n_predict"]
        c = await load_client.Connection.open(self.client.address)
        try:
            data = self.client.bytes_of("POST", "/completion", request, (("Connection", "close"),))
            if start:
                await start.wait()
            trace.asked = time.perf_counter()
            await c.send(data)
            status, headers = await c.head()
            if status != 200:
                body = b"".join([piece async for piece in c.pieces(headers)])
                sys.exit(f"POST /completion: {status} {body.decode(errors='replace')}")
            await self.read(c, headers, trace)
        finally:
            c.close()
        return trace

    async def read(self, c, headers, trace):
        async for moment, data in c.events(headers):
            chunk = json.loads(data)
            if "error" in chunk:
                sys.exit(f"error in the middle of a stream: {data.decode(errors='replace')}")
            trace.points.append((moment, chunk["tokens_predicted"]))
            trace.ended = chunk["stop"]

    async def write_all(self, requests):
        """Sends all requests together, each on a connection that is already open."""
        start = asyncio.Event()
        tasks = [asyncio.ensure_future(self.write(r, start=start)) for r in requests]
        await asyncio.sleep(0.05)
        start.set()
        return await asyncio.gather(*tasks)

    async def settle(self, seconds=10):
        """Waits until no slot is busy. Returns the number of slots that still are."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            busy = [s for s in await self.client.get("/slots") if s["state"] != "idle"]
            if not busy:
                return 0
            await asyncio.sleep(0.05)
        return len(busy)

    async def checked(self, what, work):
        """Awaits traces. Checks that the server counted exactly the tokens that arrived and that were requested."""
        before = await self.client.metrics()
        began, worked = time.perf_counter(), time.process_time()
        traces = await work
        self.client_share = max(self.client_share, (time.process_time() - worked) / (time.perf_counter() - began))
        after = await self.client.metrics()
        more = {name: after[name] - before[name] for name in
                ("predicted_tokens_total", "prompt_tokens_total", "cached_tokens_total")}
        wanted, came = sum(t.n_wanted for t in traces), sum(t.n for t in traces)
        n_prompt = sum(t.n_prompt for t in traces)
        read = more["prompt_tokens_total"] + more["cached_tokens_total"]
        good = came == wanted == more["predicted_tokens_total"] and read == n_prompt and all(t.ended for t in traces)
        self.checks.append(dict(what=what, asked_for=wanted, came=came, counted=int(more["predicted_tokens_total"]),
                                of_prompts=n_prompt, counted_of_prompts=int(read), good=good))
        return traces


# ---- speed of traces -----------------------------------------------------------------------------------

def percentile(values, share):
    """The percentile `share` (0 to 1) of the values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def stretches(traces):
    """Total tokens/s in each window in which all streams generate, measured by the stream with the most points.

    Each pass gives one token to every stream, so the stream that received the most pieces shows best when
    passes ended."""
    begin, end = max(t.points[0][0] for t in traces), min(t.points[-1][0] for t in traces)
    points = [p for p in max(traces, key=lambda t: len(t.points)).points if begin <= p[0] <= end]
    found, at = [], 0
    for i, (moment, n) in enumerate(points):
        if moment - points[at][0] >= STRETCH:
            found.append(len(traces) * (n - points[at][1]) / (moment - points[at][0]))
            at = i
    if not found and points and points[-1][0] > points[0][0]:  # everything is shorter than one window
        found.append(len(traces) * (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0]))
    return found


def speed(traces):
    """The results of one round of streams."""
    begin, end = max(t.points[0][0] for t in traces), min(t.points[-1][0] for t in traces)
    asked, last = min(t.asked for t in traces), max(t.points[-1][0] for t in traces)
    together = sum(t.count(begin, end) for t in traces) / (end - begin) if end > begin else 0
    return dict(best=max(stretches(traces), default=0), together=together,
                with_prompts=sum(t.n for t in traces) / (last - asked), ttft=[t.ttft for t in traces],
                gaps=[g for t in traces for g in t.gaps()], tpot=[t.tpot for t in traces])


# ---- parts ---------------------------------------------------------------------------------------------

def bench_model(a):
    """tokens/s for each number of sequences without a server."""
    words = [a.program, "bench", "model", "-m", a.model, "-p", "512", "-n", "1", "--seconds", str(a.seconds),
             "--sequences", ",".join(map(str, a.streams)), "--json"]
    done = subprocess.run(words + (["-t", str(a.threads)] if a.threads else []), stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit("dsmoe bench model failed: see its message above")
    return {s["n"]: s["tokens_per_s"] for s in json.loads(done.stdout)["sequences"]}


async def serve_streams(b):
    found = {}
    for n in b.a.streams:
        # The last stream starts to generate some passes after the first. With more streams, answers must be
        # longer so that all of them overlap.
        requests = [b.request(b.a.n_prompt, b.a.n_gen + n) for _ in range(n)]
        found[n] = speed(await b.checked(f"{n} streams", b.write_all(requests)))
    return found


def summary(n, rounds, alone):
    """One line of the table, from all rounds."""
    ttft, gaps, tpot = ([x for r in rounds for x in r[key]] for key in ("ttft", "gaps", "tpot"))
    best = max(r["best"] for r in rounds)
    return dict(streams=n, tokens_per_s=best, tokens_per_s_median=statistics.median(r["together"] for r in rounds),
                with_prompts=max(r["with_prompts"] for r in rounds), bench_model=max(alone), ratio=best / max(alone),
                ttft_median=statistics.median(ttft), ttft_p99=percentile(ttft, 0.99),
                itl_median=statistics.median(gaps), itl_p99=percentile(gaps, 0.99), tpot_median=statistics.median(tpot),
                tpot_p99=percentile(tpot, 0.99))


async def measure_streams(b):
    """Measures the server and the model alone in turn. The order changes with the round."""
    served, alone = [], []
    for i in range(b.a.rounds):
        print(f"streams: round {i + 1} of {b.a.rounds}", file=sys.stderr, flush=True)
        if i % 2 == 0:
            alone.append(bench_model(b.a))
        served.append(await serve_streams(b))
        if i % 2:
            alone.append(bench_model(b.a))
    return [summary(n, [s[n] for s in served], [s[n] for s in alone]) for n in b.a.streams]


class Others:
    """Streams that run until they are cancelled."""

    def __init__(self, b):
        self.b, self.traces, self.tasks = b, [Trace() for _ in range(b.a.others)], []

    async def __aenter__(self):
        room = self.b.a.long - self.b.a.n_prompt
        self.tasks = [asyncio.ensure_future(self.b.write(self.b.request(self.b.a.n_prompt, room), t))
                      for t in self.traces]
        while not all(t.n >= 4 for t in self.traces):
            self.check()
            await asyncio.sleep(0.01)
        return self

    def check(self):
        for task in self.tasks:
            if task.done():
                sys.exit("a background stream ended too early: set --long to more tokens")

    async def __aexit__(self, *_):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        left = await self.b.settle()
        self.b.checks.append(dict(what="slots of cancelled streams are idle", still_busy=left, good=not left))

    def gaps(self, begin, end=float("inf")):
        return [g for t in self.traces for g in t.gaps(begin, end)]


async def measure_long(b):
    """How long the other streams wait without a long prompt and while one is read."""
    rounds = []
    for i in range(b.a.rounds):
        print(f"long prompt: round {i + 1} of {b.a.rounds}", file=sys.stderr, flush=True)
        async with Others(b) as others:
            quiet = time.perf_counter()
            while len(others.gaps(quiet)) < 24 * b.a.others:
                others.check()
                await asyncio.sleep(0.02)
            without = others.gaps(quiet)
            trace = await b.write(b.request(b.a.long, 1))
            with_it = others.gaps(trace.asked, trace.points[0][0])
            others.check()
        rounds.append(dict(itl_median_without=statistics.median(without), itl_p99_without=percentile(without, 0.99),
                           itl_median=statistics.median(with_it), itl_p99=percentile(with_it, 0.99),
                           ratio=percentile(with_it, 0.99) / statistics.median(without), ttft=trace.ttft))
    best = min(rounds, key=lambda r: r["ratio"])
    return dict(best, ratio_median=statistics.median(r["ratio"] for r in rounds), rounds=rounds)


async def being_read(b, long):
    """Waits until a part of the long prompt is read, but not all of it."""
    while True:
        slots = await b.client.get("/slots")
        if any(s["state"] == "prompt" and s["n_prompt"] == b.a.long and s["n_prompt_done"] > 0 for s in slots):
            return
        if long.done():
            sys.exit("the long prompt was read before a short one could be sent: set --long to more tokens")
        await asyncio.sleep(0.01)


async def measure_short(b):
    """Passes until a short prompt has its first token while a long prompt is read and the other streams run."""
    passes, ttft = [], []
    async with Others(b) as others:
        for i in range(b.a.rounds):
            print(f"short prompt: round {i + 1} of {b.a.rounds}", file=sys.stderr, flush=True)
            long = asyncio.ensure_future(b.write(b.request(b.a.long, 1)))
            await being_read(b, long)
            before = (await b.client.metrics())["passes_total"]
            trace = await b.write(b.request(b.a.n_prompt, 1))
            after = (await b.client.metrics())["passes_total"]
            if long.done():
                sys.exit("the long prompt was read before the short one: set --long to more tokens")
            passes.append(int(after - before))
            ttft.append(trace.ttft)
            await long
            others.check()
    return dict(passes=max(passes), passes_of_rounds=passes, ttft_median=statistics.median(ttft))


async def watch(b, seen):
    """Reads GET /routing until it is cancelled."""
    c = await load_client.Connection.open(b.client.address)
    try:
        await c.send(b.client.bytes_of("GET", "/routing"))
        _, headers = await c.head()
        async for _, data in c.events(headers):
            seen.append(len(data))
    finally:
        c.close()


WAYS = ("nobody", "GET /routing", "routing of one", "routing of all")


async def write_watched(b, way):
    n_routing = {"routing of one": 1, "routing of all": b.a.others}.get(way, 0)
    requests = [b.request(b.a.n_prompt, b.a.n_gen + b.a.others, **({"routing": True} if i < n_routing else {}))
                for i in range(b.a.others)]
    seen = []
    watcher = asyncio.ensure_future(watch(b, seen)) if way == "GET /routing" else None
    traces = await b.checked(f"watching: {way}", b.write_all(requests))
    if watcher:
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)
        b.checks.append(dict(what="GET /routing had events", events=len(seen), good=len(seen) > 0))
    return max(stretches(traces), default=0)


async def measure_watching(b):
    """Measures all ways in turn."""
    found = {way: [] for way in WAYS}
    for i in range(b.a.rounds):
        print(f"watching: round {i + 1} of {b.a.rounds}", file=sys.stderr, flush=True)
        for way in WAYS if i % 2 == 0 else reversed(WAYS):
            found[way].append(await write_watched(b, way))
    nobody = max(found["nobody"])
    return [dict(way=way, tokens_per_s=max(speeds), cost=1 - max(speeds) / nobody) for way, speeds in found.items()]


# ---- the whole benchmark -------------------------------------------------------------------------------

def bar(name, value, met, text):
    return dict(name=name, value=value, met=bool(met), text=text)


def judge(a, report):
    """The targets of the parts that were measured."""
    found = []
    for line in report.get("streams", []):
        if line["streams"] == 16:
            found.append(bar("streams", line["ratio"], line["ratio"] >= BARS["streams"],
                             f"16 streams have {line['ratio']:.1%} of the model alone; at least {BARS['streams']:.0%}"))
    if "long" in report:
        ratio = report["long"]["ratio"]
        found.append(bar("long", ratio, ratio < BARS["long"],
                         f"while {a.long} tokens are read, p99 between others' tokens is {ratio:.2f} times their "
                         f"median before; under {BARS['long']:g}"))
    if "short" in report:
        passes = report["short"]["passes"]
        found.append(bar("short", passes, passes <= BARS["short"],
                         f"a short prompt beside it has its first token after at most {passes} passes; "
                         f"{BARS['short']}"))
    for line in report.get("watching", [])[1:]:
        found.append(bar(f"watching: {line['way']}", line["cost"], line["cost"] < BARS["watching"],
                         f"{line['way']} costs {line['cost']:.1%}; under {BARS['watching']:.0%}"))
    return found


async def measure(a, client):
    models = await client.get("/v1/models")
    b = Bench(a, client, models["data"][0]["meta"]["n_vocab"])
    props = await client.get("/props")
    need = max([*a.streams, a.others + 2])
    if props["total_slots"] < need or props["n_ctx"] <= a.long:
        sys.exit(f"the server has {props['total_slots']} slots of {props['n_ctx']} tokens; {need} of more than {a.long} "
                 "are needed")
    await b.write_all([b.request(a.n_prompt, 8) for _ in range(a.others)])  # warms up: reads the weights into memory
    await b.settle()
    report = {}
    for part, work in (("streams", measure_streams), ("long", measure_long), ("short", measure_short),
                       ("watching", measure_watching)):
        if part in a.parts:
            report[part] = await work(b)
    return dict(report, model=a.model, bars=judge(a, report), checks=b.checks, client_share=b.client_share)


def ms(seconds):
    return f"{1e3 * seconds:.0f}" if seconds >= 0.01 else f"{1e3 * seconds:.1f}"


def show(a, r):
    print(f"\n{os.path.basename(a.model)}, prompts of {a.n_prompt} random tokens, answers of {a.n_gen} and more, {a.rounds} rounds")
    if "streams" in r:
        print(f"\n{'streams':>8}{'tokens/s':>10}{'model alone':>13}{'ratio':>8}{'with prompts':>14}"
              f"{'TTFT ms':>9}{'p99':>7}{'ITL ms':>8}{'p99':>7}{'TPOT ms':>9}{'p99':>7}")
        for s in r["streams"]:
            print(f"{s['streams']:>8}{s['tokens_per_s']:>10.1f}{s['bench_model']:>13.1f}{s['ratio']:>7.1%}"
                  f"{s['with_prompts']:>15.1f}{ms(s['ttft_median']):>9}{ms(s['ttft_p99']):>7}{ms(s['itl_median']):>8}"
                  f"{ms(s['itl_p99']):>7}{ms(s['tpot_median']):>9}{ms(s['tpot_p99']):>7}")
    if "long" in r:
        x = r["long"]
        print(f"\n{a.others} streams, a prompt of {a.long} tokens arrives: between tokens {ms(x['itl_median_without'])} ms "
              f"before, {ms(x['itl_median'])} ms while it is read, p99 {ms(x['itl_p99'])} ms ({x['ratio']:.2f} times; "
              f"median of rounds {x['ratio_median']:.2f}); its own first token after {x['ttft']:.2f} s")
    if "short" in r:
        print(f"a short prompt meanwhile: first token after {r['short']['passes_of_rounds']} passes, "
              f"{ms(r['short']['ttft_median'])} ms")
    if "watching" in r:
        print(f"\n{a.others} streams{'tokens/s':>20}{'cost':>9}")
        for line in r["watching"]:
            print(f"{line['way']:<18}{line['tokens_per_s']:>12.1f}{line['cost']:>9.1%}")
    print()
    for line in r["bars"]:
        print(f"{'met   ' if line['met'] else 'MISSED'} {line['text']}")
    bad = [c for c in r["checks"] if not c["good"]]
    for check in bad:
        print(f"WRONG  {json.dumps(check)}")
    if not bad:
        print(f"met    the server's counters agree with the answers, {len(r['checks'])} times")
    print(f"this client took up to {r['client_share']:.1%} of a processor")


def main():
    a = parse()
    options = ["--parallel", str(max([*a.streams, a.others + 2])), "-c", str(a.long + 64)]
    server = None
    if not a.url:
        server = load_client.Server(a.program, a.model, options + (["-t", str(a.threads)] if a.threads else []))
    try:
        report = asyncio.run(measure(a, load_client.Client(load_client.address_of(a.url or server.url), a.api_key)))
    finally:
        code = server.end() if server else 0
    if server:
        report["checks"].append(dict(what="the server's exit code", code=code, good=code == 0))
    if a.json:
        print(json.dumps(report, indent=1))
    else:
        show(a, report)
    return 0 if all(c["good"] for c in report["checks"]) else 1


if __name__ == "__main__":
    sys.exit(main())
