"""Tiny traces in the formats of the real ones."""

import csv
import random

OPENB_NODES = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
OPENB_PODS = (
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "gpu_spec",
    "qos",
    "pod_phase",
    "creation_time",
    "deletion_time",
    "scheduled_time",
)


def write_csv(path, columns, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def openb_nodes(path, cards=(2, 4, 8, 1, 0), models=("T4", "G2", "P100")):
    rows = [
        (f"node-{n}", 32000, 131072, count, models[n % len(models)] if count else "") for n, count in enumerate(cards)
    ]
    return write_csv(path, OPENB_NODES, rows)


def openb_pods(path, count=60, seed=1):
    """Pods of every kind, with every fifth one picky about the model."""
    draw = random.Random(seed)
    rows = []
    for n in range(count):
        cards, share = draw.choice([(0, 0), (1, 250), (1, 500), (1, 730), (1, 1000), (1, 1000), (2, 1000), (4, 1000)])
        spec = "T4|P100" if cards and n % 5 == 0 else ""
        start = 10 * n
        rows.append((f"pod-{n}", draw.choice([1000, 4000, 9000]), 2048, cards, share, spec, "LS", "Running"))
        rows[-1] += (start, start + 500 + n, start + 3)
    return write_csv(path, OPENB_PODS, rows)
