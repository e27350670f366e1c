"""Images per second for each way that torch's threads can wait, alone and beside other processes.

    python benchmarks/waiting.py

Times a training step of rn26-embed with as many threads as cores: on an idle machine, beside a process that keeps one
core busy, and beside a second training of the same kind. The ways differ in how often a waiting thread spins before it
sleeps (GOMP_SPINCOUNT), from never (OMP_WAIT_POLICY=PASSIVE) to always (ACTIVE). They take turns within a round.
"""

import os
import statistics
import subprocess
import sys
import time

WAYS = {"0 (PASSIVE)": {"OMP_WAIT_POLICY": "PASSIVE"}}
WAYS |= {f"{count:,}": {"GOMP_SPINCOUNT": str(count)} for count in (1_000, 10_000, 100_000)}
WAYS |= {"unlimited (ACTIVE)": {"OMP_WAIT_POLICY": "ACTIVE"}}
BESIDE = ("alone", "beside one busy core", "beside another training")
SECONDS = 6
ROUNDS = 2


def train() -> None:
    """Train for `SECONDS` and print the images per second."""
    from training import BATCH, our_step

    step = our_step("rn26-embed", 0.5)
    step()
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < SECONDS:
        step()
        steps += 1
    print(BATCH * steps / (time.perf_counter() - start))


def measured(way: str, beside: str) -> float:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))} | WAYS[way]
    command = [sys.executable, __file__, "train"]
    others = []
    if beside == "beside one busy core":
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"])]
    elif beside == "beside another training":
        others = [subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)]
    try:
        return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    finally:
        for other in others:
            other.kill()
            other.wait()


def main() -> None:
    print(f"rn26-embed, {os.cpu_count()} threads, median (minimum) of {ROUNDS} rounds, images/s\n")
    rates: dict[tuple[str, str], list[float]] = {(way, beside): [] for way in WAYS for beside in BESIDE}
    for done in range(ROUNDS):
        for number, (way, beside) in enumerate(rates):
            print(f"\rround {done + 1} of {ROUNDS}, {number + 1} of {len(rates)}", end="", flush=True, file=sys.stderr)
            rates[way, beside].append(measured(way, beside))
    print("\r" + " " * 40, end="\r", file=sys.stderr)
    print("\n".join([f"| spinning | {' | '.join(BESIDE)} |", "|---" * (len(BESIDE) + 1) + "|"]))
    for way in WAYS:
        cells = (f"{statistics.median(rates[way, b]):.0f} ({min(rates[way, b]):.0f})" for b in BESIDE)
        print(f"| {way} | {' | '.join(cells)} |")


if __name__ == "__main__":
    train() if sys.argv[1:] == ["train"] else main()
