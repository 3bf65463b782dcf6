#!/usr/bin/python3
"""Puts random load on `dsmoe serve` for as long as you like, and lists all problems at the end.

    bench/soak.py build/dsmoe tiny-q4_k.gguf --minutes 5

Clients use everything that the server offers in all forms. They disconnect at any time, send damaged and absurd
requests, read slowly, and keep idle connections open. Every complete answer is checked: its form, its sums, and that
the same question gets the same answer as the first time, whatever other requests are running. That holds for models of
quantised types, and for others with --same-bits. Errors must be well-formed errors. At the end the server must be as
quiet as before: no busy slot, no waiting request, no page of keys and values in use, the same number of open files and
hardly more memory. SIGTERM must end it with exit code 0.

The actions of the clients depend only on --seed; their times do not. Each problem in the list names the
client and the step, such as 7/123; --replay 7/123 repeats that step alone.

A model to try it with:
    dsmoe init --preset tiny --vocab-size 102400 --type q4_k --tokenizer tests/data/tokenizer tiny-q4_k.gguf
"""
import argparse
import asyncio
import collections
import json
import random
import sys
import time

sys.dont_write_bytecode = True  # keeps the source folder clean
import load_client  # noqa: E402
import soak_hostile as hostile  # noqa: E402
import soak_requests as requests  # noqa: E402

KEY = "soak"
PATIENCE = 120  # seconds for an answer: all slots may be busy, and some wait for slow readers
HEALTH = 5  # seconds for /health, which does not wait for other requests
QUIET = 45  # seconds until the server is quiet at the end; connections may be idle for 30
# How much memory apart from the model's file may grow after the first minute, when every page of keys and values has been
# used once. Each HTTP thread and the scheduler may keep freed memory for later: a body of 8 MB that was
# read and parsed at a bad moment, per thread. A leak of 1 kB per request is 60 MB after ten minutes of 100 requests a second.
MORE_MEMORY = 32 << 20
MOST_PROBLEMS = 500

ACTIONS = (  # action, share of all steps
    (requests.ask_case, 42), (requests.ask_in_turn, 4), (requests.ask_embedding, 6), (requests.ask_tokens, 7), (requests.ask_info, 6),
    (hostile.abort, 14), (hostile.ask_wrong_body, 11), (hostile.ask_wrong_head, 6), (hostile.half_close, 2),
    (hostile.send_too_much, 0.3), (hostile.stay_idle, 1))
SLOW = ((hostile.read_slowly, 3), (hostile.send_slowly, 1))


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    load_client.add_arguments(p)
    p.add_argument("--minutes", type=float, default=5, help="duration of the load (5)")
    p.add_argument("--clients", type=int, default=16, help="clients that send requests at the same time (16)")
    p.add_argument("--slow", type=int, default=3, help="additional clients that read or send slowly (3)")
    p.add_argument("--parallel", type=int, default=6, help="slots of the server (6)")
    p.add_argument("-c", "--ctx-size", type=int, default=512, help="tokens of a text (512)")
    p.add_argument("--queue", type=int, default=8, help="requests that may wait; more are told to come back later (8)")
    p.add_argument("--same-bits", action="store_true", help="needed for models of float types")
    p.add_argument("--replay", metavar="CLIENT/STEP", help="run this step alone")
    return p.parse_args()


def kind_of(what, asked):
    """Problems with the same kind are listed together."""
    return what[:60], (asked or "")[:40]


class Soak:
    def __init__(self, a, server, client, world):
        self.a, self.server, self.client, self.world = a, server, client, world
        self.counts, self.problems, self.slowest_health = collections.Counter(), [], 0.0
        self.over = asyncio.Event()
        self.began = time.monotonic()

    # ---- clients ---------------------------------------------------------------------------------------

    def problem(self, where, what, asked=None):
        """Records a problem, and prints it immediately if it is the first of its kind."""
        if kind_of(what, asked) not in {kind_of(*p[1:]) for p in self.problems}:
            print(f"WRONG {where}: {what:.300}", flush=True)
        self.problems.append((where, what, asked))
        if len(self.problems) >= MOST_PROBLEMS or (self.server and not self.server.is_alive()):
            self.over.set()

    async def step(self, actions, where):
        rng = random.Random(f"{self.a.seed}/{where}")
        work = rng.choices([w for w, _ in actions], [share for _, share in actions])[0]
        asked = [work.__name__]

        def note(path, body):
            shown = repr(body)[2:-1] if isinstance(body, bytes) else json.dumps(body)
            asked[:] = [work.__name__, path, shown]

        try:
            async with asyncio.timeout(PATIENCE):
                self.counts[await work(self.world, rng, note)] += 1
        except requests.Wrong as why:
            self.problem(where, str(why), " ".join(asked))
        except TimeoutError:
            self.problem(where, f"no answer in {PATIENCE} s", " ".join(asked))
        except (load_client.Broken, OSError, KeyError, TypeError, ValueError, IndexError, AttributeError) as why:
            self.problem(where, f"{type(why).__name__}: {why}", " ".join(asked))
        self.counts["requests"] += 1

    async def work(self, actions, number):
        step = 0
        while not self.over.is_set():
            await self.step(actions, f"{number}/{step}")
            step += 1

    async def watch(self):
        """Watches GET /routing most of the time."""
        while not self.over.is_set():
            try:
                await requests.watch_routing(self.world, lambda *_: None, 5)
            except (requests.Wrong, load_client.Broken, OSError, KeyError) as why:
                self.problem("watcher", f"GET /routing: {type(why).__name__}: {why}")
            await asyncio.sleep(1)

    async def ask_health(self):
        """Checks that /health answers at any time."""
        while not self.over.is_set():
            asked = time.monotonic()
            try:
                async with asyncio.timeout(HEALTH):
                    await self.client.get("/health")
            except (TimeoutError, load_client.Broken, OSError) as why:
                self.problem("health", f"GET /health: {type(why).__name__}: {why} after {time.monotonic() - asked:.1f} s")
            self.slowest_health = max(self.slowest_health, time.monotonic() - asked)
            await asyncio.sleep(0.5)

    # ---- reports ---------------------------------------------------------------------------------------

    async def line(self):
        c = self.counts
        metrics, slots = await self.client.metrics(), await self.client.get("/slots")
        states = collections.Counter(s["state"] for s in slots)
        errors = " ".join(f"{status}:{n}" for status, n in sorted((k, n) for k, n in c.items()
                                                                   if isinstance(k, int) and k >= 400))
        memory = f", {self.server.memory()[0] >> 20} MB, {self.server.n_files()} files" if self.server else ""
        print(f"{time.monotonic() - self.began:5.0f} s: {c['requests']} requests, {c[200]} answered, {c['aborted']} aborted, "
              f"{c[0]} closed, errors {errors or 'none'}{memory}, {metrics['connections']:.0f} connections, slots "
              f"{' '.join(f'{state}:{n}' for state, n in sorted(states.items()))}, waiting "
              f"{metrics['requests_waiting']:.0f}, wrong {len(self.problems)}", flush=True)

    async def report(self):
        while not self.over.is_set():
            try:
                await asyncio.wait_for(self.over.wait(), 30)
            except TimeoutError:
                pass
            try:
                await self.line()
            except (load_client.Broken, OSError, KeyError) as why:
                self.problem("report", f"{type(why).__name__}: {why}")

    # ---- from beginning to end -------------------------------------------------------------------------

    async def fill_pages(self):
        """Uses every page of keys and values once, so that memory does not grow because of them later."""
        rng = random.Random(f"{self.a.seed}/fill")
        prompts = [self.world.ids(rng, self.world.n_ctx - 1) for _ in range(2 * self.a.parallel)]
        some = max(1, self.a.parallel)
        for i in range(0, len(prompts), some):
            await asyncio.gather(*(self.client.ask("POST", "/completion", {"prompt": p, "n_predict": 1})
                                   for p in prompts[i:i + some]))

    async def quiet(self):
        """Waits until the server is quiet. Returns a list of what is not as it should be without requests."""
        end, wrong = time.monotonic() + QUIET, ["not looked"]
        while wrong and time.monotonic() < end:
            await asyncio.sleep(0.5)
            metrics, slots = await self.client.metrics(), await self.client.get("/slots")
            wrong = [f"slot {s['id']} is busy: {s}" for s in slots if s["state"] != "idle"]
            wrong += [f"{name} is {metrics[name]:.0f}" for name in ("requests_running", "requests_waiting", "kv_pages_used")
                      if metrics[name]]
            if self.server and self.server.n_files() > self.files:
                wrong.append(f"{self.server.n_files()} open files, {self.files} at the beginning")
        return wrong

    async def run(self):
        await self.fill_pages()
        for why in await self.settle():
            self.problem("beginning", why)
        tasks = [self.work(ACTIONS, i) for i in range(self.a.clients)]
        tasks += [self.work(SLOW, self.a.clients + i) for i in range(self.a.slow)]
        tasks = [asyncio.ensure_future(t) for t in (*tasks, self.watch(), self.ask_health(), self.report())]
        seconds = 60 * self.a.minutes
        early = None
        for until in (min(60, seconds / 2), seconds):
            try:
                await asyncio.wait_for(self.over.wait(), max(0.1, until - (time.monotonic() - self.began)))
            except TimeoutError:
                pass
            if early is None and self.server and self.server.is_alive():
                early = self.server.memory()[1]
        self.over.set()
        await asyncio.gather(*tasks)
        await self.finish(early)

    async def settle(self):
        """Records the state at the beginning, to compare with the end."""
        self.files = self.server.n_files() if self.server else 0
        return await self.quiet()

    async def finish(self, early):
        if self.server and not self.server.is_alive():
            return
        try:
            for why in await self.quiet():
                self.problem("end", why)
            await self.client.get("/health")
        except (load_client.Broken, OSError, KeyError) as why:
            self.problem("end", f"{type(why).__name__}: {why}")
        if self.server and self.server.is_alive():
            late = self.server.memory()[1]
            print(f"memory without the model's file: {early / 1e6:.1f} MB after the first minute, {late / 1e6:.1f} MB at the "
                  f"end; {MORE_MEMORY / 1e6:.0f} MB more are allowed", flush=True)
            if late > early + MORE_MEMORY:
                self.problem("end", f"memory grew from {early} to {late} bytes")
        print(f"slowest answer of /health: {self.slowest_health:.2f} s; "
              f"{sum(k.startswith('case') for k in self.world.answers)} of {len(self.world.cases)} cases had an answer")


async def soak(a, server):
    client = load_client.Client(load_client.address_of(a.url or server.url), a.api_key)
    models, props = await client.get("/v1/models"), await client.get("/props")
    s = Soak(a, server, client, requests.World(client, models, props, a.seed))
    if a.replay:
        number = int(a.replay.split("/")[0])
        await s.step(ACTIONS if number < a.clients else SLOW, a.replay)
        print(f"{a.replay}: {dict(s.counts)}")
    else:
        await s.run()
    return s.problems


def end(server, problems):
    """Sends SIGTERM and checks that the server ends well."""
    if not server.is_alive():
        problems.append(("server", f"it ended by itself with {server.child.wait()}: {server.tail()}", None))
        return
    began = time.monotonic()
    code = server.end()
    if code != 0:
        problems.append(("server", f"SIGTERM ended it with {code} after {time.monotonic() - began:.0f} s: {server.tail()}",
                         None))


def show(problems):
    """Prints one problem of each kind in full, and where the others of that kind were."""
    kinds = {}
    for where, what, asked in problems:
        kinds.setdefault(kind_of(what, asked), []).append((where, what, asked))
    for found in kinds.values():
        where, what, asked = found[0]
        others = " ".join(w for w, _, _ in found[1:9])
        print(f"\nWRONG {where}: {what:.2000}" + (f"\n  asked: {asked:.3000}" if asked else ""))
        if others:
            print(f"  {len(found)} times; also {others}")


def main():
    a = parse()
    server = None
    if not a.url:
        a.api_key = KEY
        options = ["--parallel", str(a.parallel), "-c", str(a.ctx_size), "--queue", str(a.queue), "--api-key", KEY]
        options += ["--same-bits"] if a.same_bits else []
        server = load_client.Server(a.program, a.model, options + (["-t", str(a.threads)] if a.threads else []))
    problems = []
    try:
        problems = asyncio.run(soak(a, server))
    finally:
        if server:
            end(server, problems)
    show(problems)
    print(f"seed {a.seed}: " + (f"{len(problems)} problems" if problems else "no problems"))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
