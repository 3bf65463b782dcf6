#!/usr/bin/python3
"""GGUF files: dsmoe and llama.cpp taking turns on the same file in one run.

    bench/gguf.py build/dsmoe moe-16b-q4_k.gguf moe-16b-q8_0.gguf

Each round times a prompt and decoding behind it, by dsmoe and then by llama.cpp, each in a process of its
own that has the machine to itself. The ratio is shown of both's best rounds, and the median of the rounds'
own ratios. The peer is the npm package node-llama-cpp. Its sampling and its hop to JavaScript count into a
decoded token; "corrected" is the speed without them, as measured once, and the ratio is to that.
--library calls the library inside the package without JavaScript, --llama-bench runs llama.cpp's own tool:
their figures stand as they are.

A file to try it with (10 GB, of random weights; --layers 4 makes it 1.4 GB):
    dsmoe init --preset 16b --type q4_k --tokenizer deepseek-moe-16b-base moe-16b-q4_k.gguf
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True  # nothing is left beside the sources
import llama  # noqa: E402


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program", metavar="DSMOE", help="the command, build/dsmoe")
    p.add_argument("files", nargs="+", metavar="FILE.gguf")
    p.add_argument("--peer-folder", default=llama.DEFAULT_FOLDER,
                   help="where node_modules/node-llama-cpp lies (build/peer)")
    p.add_argument("--library", action="store_true", help="call the package's library itself")
    p.add_argument("--llama-bench", metavar="PATH", help="llama.cpp's own tool instead of the package")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("-t", "--threads", type=int, default=2)
    p.add_argument("-p", "--n-prompt", type=int, default=512)
    p.add_argument("-n", "--n-gen", type=int, default=32)
    p.add_argument("--seconds", type=float, default=10, help="of each in a round, and at least three repetitions (10)")
    p.add_argument("--json", action="store_true")
    return p.parse_args()


def time_dsmoe(a, file):
    words = [a.program, "bench", "model", "-m", file, "-p", str(a.n_prompt), "-n", str(a.n_gen), "-t", str(a.threads),
             "--seconds", str(a.seconds), "--json"]
    run = subprocess.run(words, stdout=subprocess.PIPE)
    if run.returncode:
        sys.exit(f"dsmoe failed with {file}: see above")
    return json.loads(run.stdout)


def time_peer(a, file):
    if a.llama_bench:
        return llama.bench_speed(a.llama_bench, file, a.n_prompt, a.n_gen, a.threads)
    speed = llama.library_speed if a.library else llama.speed
    return speed(a.peer_folder, file, a.n_prompt, a.n_gen, a.threads, a.seconds)


def work(ours, theirs, speed, share, correction):
    """One line of the table from all rounds; `speed` and `share` are keys."""
    best = max(ours, key=lambda r: r[speed])
    peer = max(r[speed] for r in theirs)
    return {"dsmoe_tps": best[speed], "peer_tps": peer, "peer_corrected_tps": peer * correction,
            "ratio": best[speed] / (peer * correction),
            "ratio_median": statistics.median(o[speed] / (t[speed] * correction) for o, t in zip(ours, theirs)),
            "share": best[share], "share_median": statistics.median(r[share] for r in ours)}


def compare(a, file):
    ours, theirs = [], []
    for i in range(a.rounds):
        print(f"{os.path.basename(file)}: round {i + 1} of {a.rounds}", file=sys.stderr, flush=True)
        ours.append(time_dsmoe(a, file))
        theirs.append(time_peer(a, file))
    peer = "llama-bench" if a.llama_bench else "library" if a.library else "node-llama-cpp"
    hop = llama.HOP if peer == "node-llama-cpp" else 1
    return {"file": file, "rounds": a.rounds, "threads": a.threads, "n_prompt": a.n_prompt, "n_gen": a.n_gen,
            "peer": peer, "correction": hop,
            "prompt": work(ours, theirs, "prefill_tps", "prefill_fma_share", 1),
            "decode": work(ours, theirs, "decode_tps", "decode_bandwidth_share", hop),
            "peak_rss_bytes": max(r["peak_rss_bytes"] for r in ours),
            "peer_peak_rss_bytes": max(r.get("peak_rss_bytes", 0) for r in theirs) or None,
            "fma_gflops": max(r["fma_gflops"] for r in ours), "read_gbs": max(r["read_gbs"] for r in ours)}


def size(n):
    if not n:
        return "unknown"
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.0f} MB"


def show(report, width):
    limits = {"prompt": "multiply-adds", "decode": "reading"}
    for name, limit in limits.items():
        w = report[name]
        file = os.path.basename(report["file"]) if name == "prompt" else ""
        print(f"{file:<{width}}  {name}{w['dsmoe_tps']:>10.2f}{w['peer_tps']:>11.2f}{w['peer_corrected_tps']:>11.2f}"
              f"{w['ratio']:>8.2f} x{w['ratio_median']:>8.2f} x{w['share']:>8.0%}{w['share_median']:>8.0%} of {limit}")
    print(f"{'':<{width}}  memory {size(report['peak_rss_bytes'])}, llama.cpp "
          f"{size(report['peer_peak_rss_bytes'])}", flush=True)


def main():
    a = parse()
    for file in [a.program, *a.files]:
        if not os.path.exists(file):
            sys.exit(f"{file}: no such file")
    if not a.llama_bench:
        llama.need_package(a.peer_folder)
    reports = [compare(a, file) for file in a.files]
    if a.json:
        print(json.dumps(reports, indent=1))
        return
    width = max(len(os.path.basename(file)) for file in a.files)
    print(f"\ntokens/s, {a.threads} threads, {a.n_prompt} tokens of prompt, {a.n_gen} decoded behind it; "
          f"{a.rounds} rounds\n")
    print(f"{'':<{width}}        {'dsmoe':>10}{'llama.cpp':>11}{'corrected':>11}{'ratio':>10}{'median':>10}"
          f"{'share':>8}{'median':>8}")
    for report in reports:
        show(report, width)
    print(f"\nthis machine, best of all rounds: {max(r['fma_gflops'] for r in reports):.1f} GFLOP/s of float32 "
          f"multiply-adds, {max(r['read_gbs'] for r in reports):.1f} GB/s of reading")


if __name__ == "__main__":
    main()
