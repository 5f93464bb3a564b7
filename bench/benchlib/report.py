# SPDX-License-Identifier: LGPL-2.1-or-later
"""Samples to tables and plots: medians, their spread, and ratios to another system of the same run."""
import math
import statistics
from collections import defaultdict


def medians(data):
    """{(fs, suite): {phase: {system: (median, spread)}}}, in the order the phases came in."""
    values = defaultdict(list)
    for sample in data["samples"]:
        value = sample.get("seconds", sample.get("size"))
        if value is not None:
            values[sample["fs"], sample["suite"], sample["phase"], sample["system"]].append(value)
    tables = {}
    for (fs, suite, phase, system), numbers in values.items():
        middle = statistics.median(numbers)
        spread = (max(numbers) - min(numbers)) / middle if middle else 0
        tables.setdefault((fs, suite), {}).setdefault(phase, {})[system] = (middle, spread)
    return tables


def geometric_mean(numbers):
    numbers = [n for n in numbers if n > 0]
    return math.exp(statistics.fmean(map(math.log, numbers))) if numbers else float("nan")


def order(table):
    seen = {}
    for row in table.values():
        seen.update(dict.fromkeys(row))
    return list(seen)


def cell(row, system, base):
    if system not in row or base not in row or not row[base][0]:
        return ""
    return f"{row[system][0] / row[base][0]:.2f}"


def number(value, phase):
    if "bytes of history" in phase:
        return f"{value / 1024:.0f} KiB"
    if phase.endswith("bytes") or phase == "descriptors":
        return f"{value:.0f}"
    return f"{value:.3f} s" if value >= 0.1 else f"{value * 1000:.3f} ms"


def table_text(table):
    systems = order(table)
    lines = ["| phase | " + " | ".join(systems) + " | spread | write/none | write/hp |",
             "|---" * (len(systems) + 4) + "|"]
    for phase, row in table.items():
        first = systems[0]
        cells = [number(row[first][0], phase) if first in row else ""]
        cells += [cell(row, s, first) or (number(row[s][0], phase) if s in row else "") for s in systems[1:]]
        spread = max(s for _, s in row.values())
        lines.append(f"| {phase} | " + " | ".join(cells) + f" | {spread:.0%} | {cell(row, 'write', 'none')} | "
                     f"{cell(row, 'write', 'hp')} |")
    for of, base in (("write", "none"), ("write", "hp"), ("none+uring", "hp"),
                     ("write+uring", "write"), ("write+uring", "hp")):
        ratios = [row[of][0] / row[base][0] for row in table.values() if of in row and base in row and row[base][0]]
        if ratios:
            lines.append(f"\nGeometric mean {of} / {base}: {geometric_mean(ratios):.3f}, largest {max(ratios):.2f}")
    return "\n".join(lines)


def markdown(data):
    about = data["machine"]
    lines = ["# Results", "", f"{about['date']}, commit {about['commit']}, Linux {about['kernel']}, {about['cpu']}, "
             f"{about['cores']} cores, {data['rounds']} rounds{', quick' if data['quick'] else ''}.", "",
             "The first column is the bare file system's median; the others are ratios to it. Spread: the largest "
             "(max - min) / median of a row."]
    for (fs, suite), table in medians(data).items():
        lines += ["", f"## {suite} on {fs}", "", table_text(table)]
    lines += ["", "## CPU seconds, memory and descriptors", "", cpu_text(data)]
    return "\n".join(lines) + "\n"


def cpu_text(data):
    values = defaultdict(list)
    for sample in data["samples"]:
        if sample["phase"] == "cpu":
            values[sample["fs"], sample["suite"], sample["system"]].append(sample)
    lines = ["| work | system | daemon s | client s | daemon MiB | descriptors |", "|---|---|---|---|---|---|"]
    for (fs, suite, system), samples in values.items():
        middle = lambda key: statistics.median(s[key] for s in samples)  # pylint: disable=cell-var-from-loop
        lines.append(f"| {suite} on {fs} | {system} | {middle('daemon'):.2f} | {middle('client'):.2f} | "
                     f"{middle('memory') / 1048576:.1f} | {middle('descriptors'):.0f} |")
    return "\n".join(lines)


def plots(data, output):
    import matplotlib  # pylint: disable=import-outside-toplevel
    matplotlib.use("Agg")
    from matplotlib import pyplot  # pylint: disable=import-outside-toplevel
    for (fs, suite), table in medians(data).items():
        systems = [s for s in order(table) if s != "bare"]
        phases = [p for p in table if "bare" in table[p] and table[p]["bare"][0]]
        if not phases or not systems:
            continue
        figure, axes = pyplot.subplots(figsize=(9, 1.5 + 0.16 * len(phases) * (len(systems) + 1)))
        height = 0.8 / len(systems)
        for i, system in enumerate(systems):
            axes.barh([y + i * height for y in range(len(phases))],
                      [table[p].get(system, (0,))[0] / table[p]["bare"][0] for p in phases], height, label=system)
        axes.set_yticks([y + 0.4 - height / 2 for y in range(len(phases))], phases)
        axes.invert_yaxis()
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_xlabel(f"times the bare file system ({fs}); less is better")
        axes.set_title(suite)
        axes.legend()
        figure.tight_layout()
        figure.savefig(output / f"{suite}-{fs}.svg")
        pyplot.close(figure)
