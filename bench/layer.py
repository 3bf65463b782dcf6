#!/usr/bin/python3
"""Compares dsmoe and the published PyTorch code on the MoE layer of the 16B model, case by case in one run.

    bench/layer.py [build/dsmoe]          needs Debian's python3-torch and libopenblas0

The two take turns, so that both run under the same conditions. At the end 64 routed experts are compared with 256 at
the same k. The time may grow by the router and by the weights that have to be read, and both are shown.
"""
import argparse
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def dsmoe(program, threads, *options):
    out = subprocess.run([program, "bench", "layer", "--threads", str(threads), "--json", *options],
                         check=True, stdout=subprocess.PIPE).stdout
    return json.loads(out)


def one_case(program, threads, mode, tokens, *options):
    infer, train = (tokens, "") if mode == "infer" else ("", tokens)
    report = dsmoe(program, threads, "--tokens", str(infer), "--train-tokens", str(train), *options)
    return report["cases"][0]


def start_peer(threads):
    python = "/usr/bin/python3"
    if subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode:
        print("PyTorch is missing (apt-get install python3-torch libopenblas0): no peer\n", file=sys.stderr)
        return None
    return subprocess.Popen([python, os.path.join(HERE, "pytorch_layer.py"), "--threads", str(threads)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


def ask_peer(peer, mode, tokens):
    peer.stdin.write(f"{mode} {tokens}\n")
    return json.loads(peer.stdout.readline())


def compare(program, threads):
    peer = start_peer(threads)
    print(f"{'case':<14}{'dsmoe ms':>10}{'GFLOP/s':>9}{'limit':>8}{'roofline':>10}{'PyTorch ms':>12}{'GFLOP/s':>9}{'dsmoe is':>12}")
    for mode, tokens in [("infer", 1), ("infer", 16), ("infer", 64), ("infer", 512), ("infer", 2048),
                         ("train", 512), ("train", 2048)]:
        ours = one_case(program, threads, mode, tokens)
        line = f"{mode} {tokens:<8}{ours['ms']:>10.1f}{ours['gflops']:>9.1f}{ours['limit']:>8}{ours['roofline']:>10.0%}"
        if peer:
            theirs = ask_peer(peer, mode, tokens)
            line += f"{theirs['ms']:>12.1f}{theirs['gflops']:>9.1f}{theirs['ms'] / ours['ms']:>10.1f} x"
        print(line, flush=True)
    if peer:
        peer.stdin.close()
        peer.wait()


def growth(program, threads, tokens=512):
    few, many = (one_case(program, threads, "infer", tokens, "--routed", str(n)) for n in (64, 256))
    router = many["router_ms"] - few["router_ms"]
    extra = many["weight_bytes"] - few["weight_bytes"]
    traffic = extra / many["read_gbs"] * 1e-6
    print(f"\n64 -> 256 routed experts, top-6, {tokens} tokens: {few['ms']:.0f} ms -> {many['ms']:.0f} ms")
    print(f"  grown by            {many['ms'] - few['ms']:8.1f} ms")
    print(f"  router              {router:8.1f} ms")
    print(f"  more weights to read{traffic:8.1f} ms ({extra / 1e9:.1f} GB at the measured {many['read_gbs']:.1f} GB/s)")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program", nargs="?", default=os.path.join(HERE, "..", "build", "dsmoe"))
    p.add_argument("--threads", type=int, default=2)
    a = p.parse_args()
    compare(a.program, a.threads)
    growth(a.program, a.threads)


if __name__ == "__main__":
    main()
