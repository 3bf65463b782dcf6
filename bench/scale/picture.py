"""picture.py - shows the results of scale.py as a picture for docs/machines.md and as a table for tests/test_scale.c."""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RANKS = (8, 16, 32, 64, 128, 256)
NETWORKS = (1, 10, 100)
COLOURS = {1: "#c0392b", 10: "#d68910", 100: "#1e8449"}


def read_points():
    return [json.loads(line) for line in (HERE / "points.jsonl").read_text().splitlines()]


def typical_row(name):
    """The index of the recorded layer that scale.py simulates."""
    rows = (ROOT / "tests/data/scale" / name).read_text().splitlines()
    order = sorted(range(len(rows)), key=lambda i: max(map(float, rows[i].split())))
    return order[len(order) // 2]


def write_table():
    """Writes one line for each simulated point."""
    speeds = json.loads((HERE / "speed.json").read_text())
    rows = {"2b": ("loads-63.txt", typical_row("loads-63.txt")), "16b": ("loads-64.txt", typical_row("loads-64.txt"))}
    lines = [
        "# What bench/scale/scale.py simulated. Columns: model, layers, way, ranks, Gbit/s; FLOP/s in attention, experts",
        "# and head, bytes/s of memory; the loads' file and its line, from 0; seconds of a step. Batches are 4 x 1024.",
    ]
    for point in read_points():
        speed = speeds[point["model"]]
        lines.append(
            f"{point['model']} {point['layers']} {point['parallel']} {point['ranks']} {point['gbit']}"
            f" {speed['attention']:.6g} {speed['experts']:.6g} {speed['head']:.6g} {speed['memory']:.6g}"
            f" {rows[point['model']][0]} {rows[point['model']][1]} {point['simulated']['step']:.6g}"
        )
    (ROOT / "tests/data/scale/simulated.txt").write_text("\n".join(lines) + "\n")


def whole_models(points, depth):
    """Simulated step times of whole models. If only two and three layers were simulated, every further layer takes the
    difference between the two."""
    steps = {}
    for p in points:
        key = (p["model"], p["parallel"], p["ranks"], p["gbit"])
        steps.setdefault(key, {})[p["layers"]] = p["simulated"]["step"]
    whole = {}
    for key, by_depth in steps.items():
        full = depth[key[0]]
        if full in by_depth:
            whole[key] = by_depth[full]
        elif 2 in by_depth and 3 in by_depth:
            whole[key] = by_depth[2] + (full - 2) * (by_depth[3] - by_depth[2])
    return whole


def plot():
    try:
        import matplotlib
    except ImportError:
        sys.exit("scale.py: matplotlib is missing: apt-get install python3-matplotlib, and take /usr/bin/python3")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines = json.loads((HERE / "plan.json").read_text())  # dsmoe_scale_predict at full depth
    whole = whole_models(read_points(), {"2b": 9, "16b": 28})
    names = {"2b": "2B", "16b": "16B"}
    figure, axes = plt.subplots(2, 2, figsize=(10, 7), sharex=True, sharey=True)
    for axis, (host, model) in zip(axes.flat, [(h, m) for h in ("this", "large") for m in names]):
        for gbit in NETWORKS:
            for parallel, style in (("data", "-"), ("experts", "--")):
                of = {p["ranks"]: p for p in lines if (p["host"], p["model"], p["parallel"], p["gbit"]) ==
                      (host, model, parallel, gbit)}
                axis.plot(RANKS, [100 * of[r]["useful"] / of[r]["step"] for r in RANKS], style, color=COLOURS[gbit],
                          label=f"{gbit} Gbit/s, {parallel}")
                dots = [(r, 100 * of[r]["useful"] / whole[model, parallel, r, gbit]) for r in RANKS
                        if host == "this" and (model, parallel, r, gbit) in whole]
                axis.plot([d[0] for d in dots], [d[1] for d in dots], "o" if parallel == "data" else "s",
                          color=COLOURS[gbit], markersize=5, fillstyle="full" if parallel == "data" else "none")
        axis.set_xscale("log", base=2)
        axis.set_xticks(RANKS, [str(r) for r in RANKS])
        axis.set_ylim(0, 100)
        axis.grid(alpha=0.3)
        axis.set_title(f"{names[model]}, hosts of {'0.19' if host == 'this' else '3'} TFLOP/s")
    for axis in axes[1]:
        axis.set_xlabel("hosts")
    for row in axes:
        row[0].set_ylabel("useful work, %")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=3, frameon=False)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(ROOT / "docs/scale.png", dpi=110)
