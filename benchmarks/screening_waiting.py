"""How often a screening finds what is best for a script that waits for an uneven loader.

    python benchmarks/screening_waiting.py [--studies 100]

The real screening runs on a simulated script whose computing takes 115 ms and whose loader supplies
a batch in 100 ms on average, which varies by 30 % from block to block; a start takes 16 s, and each
compilation 25 s. It has the batch that is there already, or waits for its own. Nothing is measured
here; it takes some seconds anywhere.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpuadvisor.domain.knobs import Settings
from gpuadvisor.tuners.loader.ceiling import CACHED
from tests.live_simulation import LiveScript, screened
from tests.simulation import Switch, multiplied, space_of

TRUE = {"channels_last": 1.3, "bf16": 1.4, "tf32": 1.0, "fused_optimizer": 1.02, "compile": 1.2}
"""What each knob is worth for the computing."""
THREE = {"channels_last", "bf16", "compile"}
START_S, COMPILING_S, EXPECTED_S = 16.0, 25.0, 40.0
COMPUTING_MS, SUPPLY_MS, UNEVEN, QUIET = 115.0, 100.0, 0.3, 0.003
LIMITS = ((100.0, 100.0), (100.0, 0.0), (60.0, 40.0), (50.0, 0.0))
"""Seconds for all of it, the start included, and further ones for what compiles."""


def counted(studies: int, limit_s: float, more_s: float, cached: bool) -> Counter[str]:
    """Screen so many scripts; return how often each was among the best, and the seconds of all."""
    count: Counter[str] = Counter()
    computing = multiplied(TRUE, COMPUTING_MS)
    for study in range(studies):
        generator = random.Random(study)

        def step_ms(settings: Settings, draw: random.Random = generator) -> float:
            ms = float(computing(settings)) * math.exp(draw.gauss(0, QUIET))
            supply_ms = SUPPLY_MS * math.exp(draw.gauss(0, UNEVEN))
            return ms if CACHED in settings else max(ms, supply_ms)

        script = LiveScript(
            step_ms,
            compile_s=lambda settings: COMPILING_S if "compile" in settings else 0.0,
            start_s=START_S,
            limit_s=limit_s,
        )
        found = screened(
            script,
            space_of(map(Switch, TRUE)),
            str(study),
            costly={"compile": EXPECTED_S},
            more_s=more_s,
            cached=cached,
        )
        best = set(found.settings)
        count.update(best)
        count["best"] += best == {name for name, gain in TRUE.items() if gain > 1}
        count["three"] += best >= THREE
        count["seconds"] += round(script.now_s)
    return count


def main() -> None:
    """Print a table of shares."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--studies", type=int, default=100)
    studies = parser.parse_args().studies
    print("| time | batch | best | the three that matter", *TRUE, "mean |", sep=" | ")
    for limit_s, more_s in LIMITS:
        for cached in (False, True):
            count = counted(studies, limit_s, more_s, cached)
            shares = (f"{count[name] / studies:.0%}" for name in ("best", "three", *TRUE))
            which = "that is there" if cached else "waited for"
            seconds = f"{count['seconds'] / studies:.0f} s"
            print(f"| {limit_s:.0f} s + {more_s:.0f} s", which, *shares, f"{seconds} |", sep=" | ")


if __name__ == "__main__":
    main()
