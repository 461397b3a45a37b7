"""The page of the documentation that holds the figures: what was measured, against what, on which machine, and when."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from bench.figures import Figure

HEAD = """\
# Performance

`make bench` writes this page. It measures the whole product against the embedded workspace and prints the same \
figures. Each figure is compared with its limit, or with a peer measured in the same run: on another machine, such a \
ratio says more than the milliseconds do. Missed limits are marked. `python -m bench NAME --page FILE` renews one \
section; each says when and where it was measured.
"""
NOT_YET = "Not measured yet."


def page(
    found: Mapping[str, Sequence[Figure]],
    about: Mapping[str, str],
    machine: str,
    date: datetime,
    before: str = "",
) -> str:
    """Markdown, a section for each measurement of ``about`` (name: what it measures). A measurement without figures
    in ``found`` keeps its section of ``before``, the page as it was. Pure."""
    parts = [HEAD]
    for name, what in about.items():
        parts.append(f"## {name}\n\n{what}")
        if figures := found.get(name):
            parts += [f"{date:%d %B %Y}, on {machine}.", _table(figures)]
        else:
            parts.append(_kept(before, name))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _kept(before: str, name: str) -> str:
    """What the page said of a measurement, without its heading and its description."""
    section = before.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    return section.strip().partition("\n\n")[2] or NOT_YET


def machine(load: float) -> str:
    """Describe this machine without its name, so that the page does not say whose it is. ``load``: how busy it was
    when the run began."""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} processors ({_processor()}), {memory_gb:.0f} GB of memory, "
        f"{platform.system()} {platform.release().partition('-')[0]}, Python {platform.python_version()}; "
        f"load {load:.1f} when the run began"
    )


def _table(figures: Sequence[Figure]) -> str:
    rows = [("What", "Measured", "Held to", "Ratio", ""), ("---",) * 5, *map(_row, figures)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(figure: Figure) -> tuple[str, ...]:
    held_to = "" if figure.against_what == "limit" else f" ({figure.against_what})"
    cells = (
        figure.what,
        f"{figure.measured:.2f} {figure.unit}".strip(),
        f"{figure.against:g} {figure.unit}".strip() + held_to,
        f"{figure.ratio:.2f} (≤ {figure.reach:g})",
        "" if figure.reached else "**missed**",
    )
    return tuple(cell.replace("|", "\\|") for cell in cells)


def _processor() -> str:
    """Its model's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.machine()
    models = (line.partition(":")[2] for line in lines if line.startswith("model name"))
    return " ".join(next(models, platform.machine()).split())
