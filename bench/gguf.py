#!/usr/bin/python3
"""Compares the speed of dsmoe and llama.cpp with the same GGUF file, taking turns in one run.

    bench/gguf.py --llama-bench PATH --llama-batched-bench PATH build/dsmoe moe-16b-q4_k.gguf moe-16b-q8_0.gguf

llama.cpp is measured as its users measure it, with its own tools, which are not part of dsmoe. llama-bench times
prompts and decoding after an empty or a filled context. llama-batched-bench times decoding of several sequences that
share nothing. Each tool can be left out. --ik-llama-bench names the llama-bench of ik_llama.cpp, which then takes
turns too, for prompts and decoding. In each round every program makes every measurement, each in its own process
with the machine to itself. The order changes with the round. The table has the best and the median of all
rounds, the ratio of the best, and the median of the rounds' own ratios.

Without these tools the peer is the npm package node-llama-cpp, which contains a prebuilt llama.cpp, for prompts and
decoding. Its time for each decoded token includes sampling and a call into JavaScript. This is a tenth to more than
a third of its time, differently for each file, so its decoding is slower than llama.cpp's own. --library calls
the library inside the package without JavaScript and without sampling.

A command that makes a file to try it with (10 GB, random weights; with --layers 4 it has 1.4 GB):
    dsmoe init --preset 16b --type q4_k --tokenizer deepseek-moe-16b-base moe-16b-q4_k.gguf
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True  # keeps the source folder clean
import llama  # noqa: E402
import llama_tools  # noqa: E402


def numbers(text):
    found = [int(word) for word in text.split(",") if word]
    if any(n < 0 for n in found):
        raise ValueError(text)
    return found


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program", metavar="DSMOE", help="the command, build/dsmoe")
    p.add_argument("files", nargs="+", metavar="FILE.gguf")
    p.add_argument("--llama-bench", metavar="PATH", help="llama.cpp's tool for prompts and decoding")
    p.add_argument("--llama-batched-bench", metavar="PATH", help="llama.cpp's tool for several sequences")
    p.add_argument("--ik-llama-bench", metavar="PATH", help="the same tool of ik_llama.cpp, as a second peer")
    p.add_argument("--peer-folder", default=llama.DEFAULT_FOLDER,
                   help="without the tools: the folder that contains node_modules/node-llama-cpp (build/peer)")
    p.add_argument("--library", action="store_true", help="without the tools: call the package's library directly")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("-t", "--threads", type=int, default=2)
    p.add_argument("-p", "--n-prompt", type=numbers, default="512,4096", metavar="LIST",
                   help="tokens of prompts (512,4096)")
    p.add_argument("-d", "--n-depth", type=numbers, default="0,512", metavar="LIST",
                   help="tokens of context before decoding (0,512)")
    p.add_argument("-n", "--n-gen", type=int, default=32, help="tokens to decode (32)")
    p.add_argument("--sequences", type=numbers, default="1,2,4,8,16,32,64", metavar="LIST",
                   help="sequences decoded together (1,2,4,8,16,32,64)")
    p.add_argument("--seconds", type=float, default=5,
                   help="seconds for each measurement of dsmoe or the package, at least three repetitions (5)")
    p.add_argument("--repetitions", type=int, default=3, help="repetitions of llama-bench for each measurement (3)")
    p.add_argument("--json", action="store_true")
    return p.parse_args()


# ---- measurements --------------------------------------------------------------------------------------
# A step is what one program measures before the next one's turn: a length, as a prompt and as the context of decoding,
# or None for several sequences. Its results are {case: {"tps": …}}, where a case is (one of WORKS, n).
WORKS = ("prompt", "decode", "sequences")


def plan(a):
    lengths = sorted({*filter(None, a.n_prompt), *a.n_depth})
    steps = lengths if a.llama_bench or not a.llama_batched_bench else []
    return steps + [None] if a.llama_batched_bench and a.sequences else steps


def cases(a, length):
    if length is None:
        return [("sequences", n) for n in a.sequences]
    prompt = [("prompt", length)] if length and length in a.n_prompt else []
    return prompt + ([("decode", length)] if length in a.n_depth else [])


class Dsmoe:
    def __init__(self, a):
        self.a, self.reports = a, []

    def run(self, file, *options):
        a = self.a
        words = [a.program, "bench", "model", "-m", file, "-t", str(a.threads), "--seconds", str(a.seconds), "--json"]
        done = subprocess.run([*words, *options], stdout=subprocess.PIPE)
        if done.returncode:
            sys.exit(f"dsmoe failed with {file}: see its message above")
        self.reports.append(json.loads(done.stdout))
        return self.reports[-1]

    def measure(self, file, length):
        if length is None:
            return self.sequences(file)
        wanted = cases(self.a, length)
        n_gen = self.a.n_gen if ("decode", length) in wanted else 1
        prompt = length if ("prompt", length) in wanted else 1
        r = self.run(file, "-d", str(max(length - prompt, 0)), "-p", str(prompt), "-n", str(n_gen))
        found = {"prompt": dict(tps=r["prefill_tps"], fma_share=r["prefill_fma_share"]),
                 "decode": dict(tps=r["decode_tps"], bandwidth_share=r["decode_bandwidth_share"])}
        for work, part in (("prompt", "prefill"), ("decode", "decode")):
            found[work]["attention_share"] = r[f"{part}_attention_share"]
        return {case: found[case[0]] for case in wanted}

    def sequences(self, file):
        r = self.run(file, "-p", "512", "-n", "1", "--sequences", ",".join(map(str, self.a.sequences)))
        return {("sequences", s["n"]): dict(tps=s["tokens_per_s"], bandwidth_share=s["bandwidth_share"],
                                            fma_share=s["fma_share"]) for s in r["sequences"]}

    def most(self, key):
        return max(r.get(key, 0) for r in self.reports)


class Tools:
    """llama.cpp's own tools."""
    name = "llama.cpp's own tools"

    def __init__(self, a):
        self.a, self.build, self.peak = a, None, 0

    def measure(self, file, length):
        a = self.a
        if length is None:
            found = llama_tools.sequences(a.llama_batched_bench, file, a.threads, a.sequences)
            return {("sequences", n): dict(tps=speed) for n, speed in found.items()}
        return {case: self.bench(file, case) for case in cases(a, length)}

    def bench(self, file, case):
        a, (work, length) = self.a, case
        common = (a.llama_bench, file, a.threads, a.repetitions)
        if work == "prompt":
            r = llama_tools.prompt(*common, length)
        else:
            r = llama_tools.decode(*common, a.n_gen, length)
        self.build, self.peak = r["build"], max(self.peak, r["peak_rss_bytes"])
        return dict(tps=r["tps"])


class IkTools:
    """The tool of ik_llama.cpp."""

    def __init__(self, a):
        self.a, self.build, self.peak = a, None, 0

    def measure(self, file, length):
        a = self.a
        common = (a.ik_llama_bench, file, a.threads, a.repetitions)
        found = {}
        for case in cases(a, length):
            if case[0] != "sequences":
                r = (llama_tools.prompt(*common, length) if case[0] == "prompt"
                     else llama_tools.decode_after(*common, a.n_gen, length))
                self.build, self.peak = r["build"], max(self.peak, r["peak_rss_bytes"])
                found[case] = dict(tps=r["tps"])
        return found


class Package:
    """node-llama-cpp, or the library inside it."""

    def __init__(self, a):
        llama.need_package(a.peer_folder)
        self.a, self.build, self.peak = a, None, 0
        self.name = "the library of node-llama-cpp" if a.library else "node-llama-cpp"

    def measure(self, file, length):
        a = self.a
        speed = llama.library_speed if a.library else llama.speed
        r = speed(a.peer_folder, file, max(length, 1), a.n_gen, a.threads, a.seconds)
        self.peak = max(self.peak, r["peak_rss_bytes"])
        found = {"prompt": r["prefill_tps"], "decode": r["decode_tps"]}
        return {case: dict(tps=found[case[0]]) for case in cases(a, length)}


# ---- what is compared ----------------------------------------------------------------------------------

def summary(case, ours, theirs, others):
    """One line of the table. Each side is a list with the results of all rounds; `others` may be empty."""
    mine, peer = [r["tps"] for r in ours], [r["tps"] for r in theirs]
    line = dict(work=case[0], n=case[1], dsmoe_tps=max(mine), dsmoe_tps_median=statistics.median(mine),
                peer_tps=max(peer), peer_tps_median=statistics.median(peer), ratio=max(mine) / max(peer),
                ratio_median=statistics.median(o / t for o, t in zip(mine, peer)))
    if others:
        second = [r["tps"] for r in others]
        line.update(ik_tps=max(second), ik_ratio=max(mine) / max(second),
                    ik_ratio_median=statistics.median(o / t for o, t in zip(mine, second)))
    for share in ("fma_share", "bandwidth_share", "attention_share"):
        if share in ours[0]:
            line[share] = statistics.median(r[share] for r in ours)
    return line


def compare(a, file):
    """Runs all programs in turn. The order changes with the round."""
    sides = [Dsmoe(a), Tools(a) if a.llama_bench or a.llama_batched_bench else Package(a)]
    if a.ik_llama_bench:
        sides.append(IkTools(a))
    results = {case: ([], [], []) for length in plan(a) for case in cases(a, length)}
    for i in range(a.rounds):
        print(f"{os.path.basename(file)}: round {i + 1} of {a.rounds}", file=sys.stderr, flush=True)
        for length in plan(a):
            for side in range(len(sides)) if i % 2 == 0 else reversed(range(len(sides))):
                for case, result in sides[side].measure(file, length).items():
                    results[case][side].append(result)
                    print(f"  {('dsmoe', 'llama.cpp', 'ik_llama.cpp')[side]}, {label(dict(work=case[0], n=case[1]))}: "
                          f"{result['tps']:.2f} tokens/s", file=sys.stderr, flush=True)
    ours, peer = sides[:2]
    second = sides[2] if len(sides) > 2 else None
    order = sorted(results, key=lambda case: (WORKS.index(case[0]), case[1]))
    return {"file": file, "peer": peer.name, "peer_build": peer.build,
            "cases": [summary(case, *results[case]) for case in order],
            "ik_build": second and second.build, "ik_peak_rss_bytes": second and second.peak,
            "prompt_logits_tps": ours.most("prompt_logits_tps") or None,
            "peak_rss_bytes": ours.most("peak_rss_bytes"), "peer_peak_rss_bytes": peer.peak or None,
            "fma_gflops": ours.most("fma_gflops"), "read_gbs": ours.most("read_gbs")}


def meaning(a, peer):
    """What is compared with what, a sentence for each kind of work."""
    tools = peer == Tools.name
    by = {"prompt": "llama-bench -p N", "decode": f"llama-bench -n {a.n_gen} -d D"} if tools else {}
    hop = ", whose time includes sampling and a call into JavaScript" if peer == "node-llama-cpp" else ""
    works = {case[0] for length in plan(a) for case in cases(a, length)}
    told = {
        "prompt": "N random tokens in pieces of 512, logits of the last one: dsmoe bench model -p N and "
                  f"{by.get('prompt', peer)}",
        "decode": f"{a.n_gen} random tokens one by one after D others (empty: dsmoe after one): dsmoe bench model "
                  f"-d D -n {a.n_gen} and {by.get('decode', peer)}{hop}",
        "sequences": f"{llama_tools.STEPS} random tokens for each of B sequences together, each after its own random "
                     f"prompt of {llama_tools.PROMPT}, prompts not counted: dsmoe bench model --sequences B and "
                     f"llama-batched-bench -npp {llama_tools.PROMPT} -ntg {llama_tools.STEPS} -npl B"}
    return {work: text for work, text in told.items() if work in works}


# ---- showing -------------------------------------------------------------------------------------------

def size(n):
    if not n:
        return "unknown"
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.0f} MB"


def label(line):
    if line["work"] == "prompt":
        return f"prompt {line['n']}"
    if line["work"] == "decode":
        return f"decode after {line['n']}" if line["n"] else "decode, empty"
    return f"{line['n']} sequence{'s' if line['n'] > 1 else ''}"


def show(report):
    print(f"{os.path.basename(report['file'])}")
    second = f"{'ik':>10}{'ratio':>10}{'median':>10}" if report["ik_build"] else ""
    print(f"{'':<20}{'dsmoe':>10}{'median':>10}{'llama.cpp':>11}{'median':>10}{'ratio':>10}{'median':>10}{second}"
          "  dsmoe has")
    for line in report["cases"]:
        shares = [f"{line[key]:.0%} of {limit}" for key, limit in
                  (("bandwidth_share", "reading"), ("fma_share", "multiply-adds")) if key in line]
        if "attention_share" in line:
            shares.append(f"attention {line['attention_share']:.0%} of the time")
        second = ""
        if "ik_tps" in line:
            second = f"{line['ik_tps']:>10.2f}{line['ik_ratio']:>8.2f} x{line['ik_ratio_median']:>8.2f} x"
        print(f"{label(line):<20}{line['dsmoe_tps']:>10.2f}{line['dsmoe_tps_median']:>10.2f}{line['peer_tps']:>11.2f}"
              f"{line['peer_tps_median']:>10.2f}{line['ratio']:>8.2f} x{line['ratio_median']:>8.2f} x{second}"
              f"  {', '.join(shares)}")
    if report["prompt_logits_tps"]:
        print(f"dsmoe, a prompt of 512 with logits of every token: {report['prompt_logits_tps']:.2f}")
    print(f"memory {size(report['peak_rss_bytes'])}, llama.cpp {size(report['peer_peak_rss_bytes'])}"
          + (f", ik_llama.cpp {size(report['ik_peak_rss_bytes'])}" if report["ik_build"] else "") + "\n", flush=True)


def show_all(a, reports):
    build = next((f", build {r['peer_build']}" for r in reports if r["peer_build"]), "")
    print(f"\ntokens/s, {a.threads} threads, {a.rounds} rounds; llama.cpp is {reports[0]['peer']}{build}"
          + (f"; ik is ik_llama.cpp's llama-bench, build {reports[0]['ik_build']}" if reports[0]["ik_build"] else "") + "\n")
    for report in reports:
        show(report)
    for work, text in meaning(a, reports[0]["peer"]).items():
        print(f"{work}: {text}")
    print(f"\nthis machine, best of all rounds: {max(r['fma_gflops'] for r in reports):.1f} GFLOP/s of float32 "
          f"multiply-adds, {max(r['read_gbs'] for r in reports):.1f} GB/s of reading")


def main():
    a = parse()
    for file in filter(None, [a.program, a.llama_bench, a.llama_batched_bench, a.ik_llama_bench, *a.files]):
        if not os.path.exists(file):
            sys.exit(f"{file}: no such file")
    if not plan(a) or a.rounds < 1:
        sys.exit("nothing to measure")
    reports = [compare(a, file) for file in a.files]
    if a.json:
        print(json.dumps({"threads": a.threads, "rounds": a.rounds, "compared": meaning(a, reports[0]["peer"]),
                          "files": reports}, indent=1))
    else:
        show_all(a, reports)


if __name__ == "__main__":
    main()
