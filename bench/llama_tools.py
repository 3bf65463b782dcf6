"""Runs llama.cpp's own tools for bench/gguf.py: llama-bench and llama-batched-bench, which the user has built.

Like `dsmoe bench model`, both use random tokens and never sample, so their figures can be compared directly.
"""
import json
import os
import subprocess
import sys
import tempfile

PROMPT = STEPS = 32  # of each sequence, as in dsmoe bench model --sequences
PASSES = 2  # over all numbers of sequences in a process: the first pass reads weights that are not in memory yet


def run(words):
    """Returns a tool's output and its peak memory in bytes. Its messages are shown only if it fails."""
    with tempfile.TemporaryFile() as messages:
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=messages)
        out = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)  # so that Popen does not wait for it again
        if child.returncode:
            messages.seek(0)
            tail = messages.read()[-2000:].decode(errors="replace")
            sys.exit(f"{' '.join(words)}\nended with {child.returncode}:\n{tail}")
    return out.decode(), 1024 * usage.ru_maxrss


def bench(program, file, threads, repetitions, *test):
    """llama-bench's report of one test, with its peak memory."""
    out, peak = run([program, "-m", file, "-t", str(threads), "-r", str(repetitions), "-o", "json", *test])
    report = json.loads(out)[0]
    return dict(tps=max(report["samples_ts"]), peak_rss_bytes=peak,
                build=f"{report['build_number']} ({report['build_commit']}), {report.get('backends', 'CPU')}")


def prompt(program, file, threads, repetitions, n):
    return bench(program, file, threads, repetitions, "-p", str(n), "-n", "0")


def decode(program, file, threads, repetitions, n_gen, depth):
    return bench(program, file, threads, repetitions, "-p", "0", "-n", str(n_gen), "-d", str(depth))


def decode_after(program, file, threads, repetitions, n_gen, depth):
    """The same with the tool of ik_llama.cpp, which has another option for the depth."""
    test = ("-n", "0", "-gp", f"{depth},{n_gen}") if depth else ("-n", str(n_gen))
    return bench(program, file, threads, repetitions, "-p", "0", *test)


def sequences(program, file, threads, numbers):
    """Tokens/s for each number of sequences, the best of all passes. Every sequence has its own prompt."""
    out, _ = run([program, "-m", file, "-t", str(threads), "-c", str(max(numbers) * (PROMPT + STEPS)),
                  "-npp", str(PROMPT), "-ntg", str(STEPS), "-npl", ",".join(map(str, numbers * PASSES)),
                  "--output-format", "jsonl"])
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    best = {n: max((row["speed_tg"] for row in rows if row["pl"] == n), default=None) for n in numbers}
    missing = [n for n, speed in best.items() if speed is None]
    if missing:
        sys.exit(f"{program} has no result for {missing} sequences of {file}")
    return best
