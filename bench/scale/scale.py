#!/usr/bin/env python3
"""scale.py [--build DIR] WHAT - how far training scales: dsmoe's message exchange on networks simulated by SimGrid.

  speed       how fast this machine trains a layer of each model           -> speed.json
  calibrate   real runs of 1, 2 and 4 ranks                                -> calibration.json
  fit         the same runs simulated, for comparison                      -> calibration.json
  sweep       simulates 8 to 256 hosts on 1, 10 and 100 Gbit/s             -> points.jsonl
  plan        predictions of dsmoe_scale_predict for whole models          -> plan.json
  table       the table that tests/test_scale.c uses                       -> tests/data/scale/simulated.txt
  plot        the picture in docs/machines.md (needs matplotlib)

Needs SimGrid (apt-get install libsimgrid-dev) and, for calibrate, Open MPI and everything that bench/hosts.sh needs. sweep
skips the points that points.jsonl already has, so it can be stopped and continued; --most R limits it to R hosts.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DATA = ROOT / "tests/data/scale"
LATENCY = 50e-6
LOADS = {"2b": "loads-63.txt", "16b": "loads-64.txt"}
DEPTH = {"2b": 9, "16b": 28}
BATCH, SEQ = 4, 1024  # 4096 tokens per rank and step
NETWORKS = (1, 10, 100)  # Gbit/s

# Settings of SimGrid: only the time that simulate.c spends explicitly counts as computing. 75 % of a cable's rate is payload;
# with this value real and simulated runs of 2 and 4 ranks agree. Messages over 64 KiB first ask whether the receiver is ready.
# Both directions of a cable are independent.
SETTINGS = {
    "smpi/simulate-computation": "no",
    "smpi/privatization": "no",
    "smpi/test": "0",
    "smpi/wtime": "0",
    "smpi/grow-injected-times": "no",
    "smpi/async-small-thresh": "0",
    "smpi/send-is-detached-thresh": "0",
    "smpi/bw-factor": "0:0.75",
    "smpi/lat-factor": "0:1;65536:3",
    "smpi/ois": "0:0:0",
    "smpi/or": "0:0:0",
    "smpi/os": "0:0:0",
    "smpi/display-timing": "no",
    "network/crosstraffic": "0",
    "network/TCP-gamma": "1e9",
}


def platform(n_ranks, bandwidth, latency, n_cores):
    """A switch and a cable for each host. If n_cores is given, all hosts compute on one machine with that many cores."""
    machine = f'<host id="machine" speed="1Gf" core="{n_cores}"/>' if n_cores else ""
    return f"""<?xml version="1.0"?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1"><zone id="world" routing="Full">
<cluster id="hosts" prefix="host" suffix="" radical="0-{n_ranks - 1}" speed="1Gf" bw="{bandwidth:.0f}Bps"
 lat="{latency / 2}s" sharing_policy="SPLITDUPLEX"/>
<zone id="apart" routing="Full">{machine}</zone>
</zone></platform>
"""


def simulate(build, n_ranks, gbit, words, latency=LATENCY, n_cores=0):
    bandwidth = gbit * 1e9 / 8
    words = dict(words, bandwidth=bandwidth, latency=latency)
    with tempfile.TemporaryDirectory() as folder:
        xml, hosts = pathlib.Path(folder, "platform.xml"), pathlib.Path(folder, "hosts")
        xml.write_text(platform(n_ranks, bandwidth, latency, n_cores))
        hosts.write_text("".join(f"host{i}\n" for i in range(n_ranks)))
        command = ["smpirun", "-no-privatize", "-np", str(n_ranks), "-platform", xml, "-hostfile", hosts]
        command += [f"--cfg={key}:{value}" for key, value in SETTINGS.items()]
        command += ["--log=root.thres:critical", build / "simulate.so"]
        command += [f"{key}={value}" for key, value in words.items() if value is not None]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"scale.py: {done.stderr.strip() or 'smpirun failed'}")
    return json.loads(done.stdout[done.stdout.index("{"):])


def speed_of(seconds, amounts):
    """FLOP/s of the parts of a step, as in dsmoe_training_speed_find."""
    return {
        "attention": amounts["attention"] / (seconds["attention"] + seconds["router"] + seconds["rest"]),
        "experts": amounts["experts"] / seconds["experts"],
        "head": amounts["head"] / seconds["head"],
        "memory": amounts["memory"] / seconds["optimizer"],
    }


# ---- speed ---------------------------------------------------------------------------------------


def measure_speed(build):
    speeds = {}
    for model in DEPTH:
        words = f"plan --preset {model} --ranks 8 --network 10 --batch {BATCH} --seq {SEQ} --json"
        done = subprocess.run([build / "dsmoe", *words.split()], capture_output=True, text=True, check=True)
        speeds[model] = {k: v for k, v in json.loads(done.stdout)["speed"].items() if k != "measured"}
    (HERE / "speed.json").write_text(json.dumps(speeds, indent=1) + "\n")


# ---- calibration ---------------------------------------------------------------------------------

CASE = {"hidden": 256, "layers": 3, "vocab-size": 4096, "batch": 8, "seq": 256}


def case_words(folder):
    """The configuration of dsmoe bench train with these sizes, and the amounts of work in a step."""
    tokens, h, layers, moe, routed, k = CASE["batch"] * CASE["seq"], CASE["hidden"], CASE["layers"], 172, 63, 7
    config = {
        "vocab_size": CASE["vocab-size"], "hidden_size": h, "intermediate_size": 344, "moe_intermediate_size": moe,
        "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 4, "n_shared_experts": 1,
        "n_routed_experts": routed, "num_experts_per_tok": k, "moe_layer_freq": 1, "first_k_dense_replace": 0,
        "norm_topk_prob": False, "scoring_func": "softmax", "aux_loss_alpha": 0.01, "hidden_act": "silu",
        "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False,
        "attention_bias": False, "model_type": "deepseek",
    }
    path = pathlib.Path(folder, "config.json")
    path.write_text(json.dumps(config))
    numbers = 2 * CASE["vocab-size"] * h + layers * (4 * h * h + routed * h + (routed + 1) * 3 * h * moe)
    amounts = {
        "attention": 3 * tokens * layers * (8 * h * h + 2 * CASE["seq"] * h + 2 * h * routed),
        "experts": 3 * tokens * layers * (k + 1) * 6 * h * moe,
        "head": 6 * tokens * h * CASE["vocab-size"],
        "memory": 32 * numbers,
    }
    return {"config": path, "batch": CASE["batch"], "seq": CASE["seq"], "waits": 1}, amounts


def bench_train(build, n_ranks, gbit, parallel):
    sizes = [word for key, value in CASE.items() for word in (f"--{key}", str(value))]
    command = [build / "dsmoe", "bench", "train", *sizes, "-t", "1", "--seconds", "1", "--json"]
    if n_ranks > 1:
        command = ["sh", HERE.parent / "hosts.sh", str(n_ranks), str(gbit), *command, "--parallel", parallel]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "{" not in done.stdout:
        sys.exit(f"scale.py: {done.stderr.strip()}")
    return json.loads(done.stdout[done.stdout.index("{"):])


def calibrate(build):
    """Real runs. The speed of computing is measured with two processes at the same time, because ranks share this machine."""
    with concurrent.futures.ThreadPoolExecutor() as both:
        beside = list(both.map(lambda _: bench_train(build, 1, 0, "data"), range(2)))
    with tempfile.TemporaryDirectory() as folder:
        found = {"speed": speed_of(beside[0]["seconds"], case_words(folder)[1]), "runs": []}
    cases = [(1, 1, "data")] + [(r, g, p) for g in (1, 0.1) for r in (2, 4) for p in ("data", "experts")]
    for n_ranks, gbit, parallel in cases:
        run = {"ranks": n_ranks, "gbit": gbit, "parallel": parallel}
        found["runs"].append(dict(run, real=bench_train(build, n_ranks, gbit, parallel)["step_seconds"]))
        print(found["runs"][-1], file=sys.stderr)
    (HERE / "calibration.json").write_text(json.dumps(found, indent=1) + "\n")


def fit(build):
    """Simulates the runs of calibrate."""
    found = json.loads((HERE / "calibration.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        words = dict(case_words(folder)[0], **found["speed"])
        for run in found["runs"]:
            made = simulate(build, run["ranks"], run["gbit"], dict(words, parallel=run["parallel"]),
                            n_cores=os.cpu_count())
            run["simulated"] = made["simulated"]["step"]
            print(f"{run['ranks']} {run['gbit']} {run['parallel']}: {run['real']:.2f} s, simulated {run['simulated']:.2f},"
                  f" {run['simulated'] / run['real']:.2f} times", file=sys.stderr)
    (HERE / "calibration.json").write_text(json.dumps(found, indent=1) + "\n")


# ---- many hosts ----------------------------------------------------------------------------------


def typical_loads(model, folder):
    """Of the recorded layers, the median by the load of the busiest expert. All layers of a model use these loads."""
    rows = sorted((DATA / LOADS[model]).read_text().splitlines(), key=lambda row: max(map(float, row.split())))
    path = pathlib.Path(folder, LOADS[model])
    path.write_text(rows[len(rows) // 2] + "\n")
    return path


def points(most):
    """Whole models on up to 16 hosts, and two and three layers of them on any number, from which whole models follow."""
    for n_ranks in (8, 16, 32, 64, 128, 256):
        for model in DEPTH:
            for parallel in ("data", "experts"):
                for gbit in NETWORKS:
                    for depth in (2, 3, DEPTH[model]) if n_ranks <= 16 else (2, 3):
                        if n_ranks <= most:
                            yield {"model": model, "parallel": parallel, "ranks": n_ranks, "gbit": gbit, "layers": depth}


def sweep(build, most):
    out = HERE / "points.jsonl"
    known = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    known = [{key: point[key] for key in ("model", "parallel", "ranks", "gbit", "layers")} for point in known]
    speeds = json.loads((HERE / "speed.json").read_text())
    with tempfile.TemporaryDirectory() as folder, out.open("a") as file:
        loads = {model: typical_loads(model, folder) for model in DEPTH}
        for point in points(most):
            if point in known:
                continue
            words = dict(speeds[point["model"]], preset=point["model"], parallel=point["parallel"], batch=BATCH,
                         seq=SEQ, layers=point["layers"], loads=loads[point["model"]])
            made = simulate(build, point["ranks"], point["gbit"], words)
            point.update(simulated=made["simulated"], predicted=made["predicted"])
            print(json.dumps(point), file=file, flush=True)
            ratio = made["predicted"]["step"] / made["simulated"]["step"]
            print(point["ranks"], point["model"], point["parallel"], point["gbit"], point["layers"],
                  f"{made['simulated']['step']:.2f} s, plan {ratio:.3f}", file=sys.stderr)


def predict(build):
    """Predicts whole models on any number of hosts like this machine, and on hosts that compute 16 times as fast."""
    speeds, lines = json.loads((HERE / "speed.json").read_text()), []
    large = {"attention": 16, "experts": 16, "head": 16, "memory": 4}
    with tempfile.TemporaryDirectory() as folder:
        loads = {model: typical_loads(model, folder) for model in DEPTH}
        for host in ("this", "large"):
            for point in ({"host": host, "model": m, "parallel": w, "gbit": g, "ranks": r} for m in DEPTH
                          for w in ("data", "experts") for g in NETWORKS for r in (8, 16, 32, 64, 128, 256)):
                speed = {k: v * (large[k] if host == "large" else 1) for k, v in speeds[point["model"]].items()}
                words = dict(speed, preset=point["model"], parallel=point["parallel"], batch=BATCH, seq=SEQ,
                             ranks=point["ranks"], loads=loads[point["model"]])
                lines.append(dict(point, **simulate(build, 1, point["gbit"], words)["predicted"]))
    (HERE / "plan.json").write_text("[\n" + ",\n".join(json.dumps(line) for line in lines) + "\n]\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "calibrate", "fit", "sweep", "plan", "table", "plot"))
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path)
    parser.add_argument("--most", default=256, type=int)
    asked = parser.parse_args()
    build = asked.build.resolve()
    if asked.what in ("fit", "sweep", "plan"):
        if not shutil.which("smpirun"):
            sys.exit("scale.py: SimGrid is missing: apt-get install libsimgrid-dev")
        subprocess.run(["cmake", "-S", ROOT, "-B", build], stdout=subprocess.DEVNULL, check=True)
        subprocess.run(["cmake", "--build", build, "--target", "bench_scale"], stdout=sys.stderr, check=True)
    if asked.what == "speed":
        measure_speed(build)
    elif asked.what == "calibrate":
        calibrate(build)
    elif asked.what == "fit":
        fit(build)
    elif asked.what == "sweep":
        sweep(build, asked.most)
    elif asked.what == "plan":
        predict(build)
    else:
        import picture
        (picture.write_table if asked.what == "table" else picture.plot)()


if __name__ == "__main__":
    main()
