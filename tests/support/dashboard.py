"""packaging/monitoring/dashboard.json: its queries, asked of a Prometheus, and a picture of them.

The picture is matplotlib's, of the panels' own queries and places; Grafana has no part in it.
"""

import json
import math

from support.prometheus import HERE

COLUMNS = 24
STEP = 1  # seconds
RATE = "20s"  # what Grafana would make of $__rate_interval is four scrapes at least


def board():
    return json.loads((HERE / "dashboard.json").read_text())


def queries(panel):
    """Query and legend of each."""
    return [
        (target["expr"].replace("$__rate_interval", RATE), target.get("legendFormat", ""))
        for target in panel.get("targets", [])
    ]


def legend(text, labels):
    for name, value in labels.items():
        text = text.replace("{{" + name + "}}", value)
    return text or " ".join(labels.values())


def series(prometheus, panel, begin, end):
    """What each line of a panel shows: its legend, times since the beginning, numbers."""
    found = []
    for query, text in queries(panel):
        for labels, points in prometheus.query_range(query, begin, end, STEP):
            points = [(t - begin, v) for t, v in points if math.isfinite(v)]
            if points:
                found.append((legend(text, labels), *zip(*points)))
    return found


def spoken(value, unit):
    if unit == "s":
        return f"{value:.3g} s" if value < 60 else f"{value / 60:.3g} min"
    if unit in ("bytes", "decbytes"):
        return f"{value / 1e6:.3g} MB"
    return f"{100 * value:.3g} %" if unit == "percentunit" else f"{value:.4g}"


def draw_one(axes, panel, lines):
    unit = panel["fieldConfig"]["defaults"].get("unit", "none")
    axes.set_title(panel["title"], fontsize=8, loc="left")
    if panel["type"] == "stat":
        axes.set_axis_off()
        if lines:
            axes.text(0.5, 0.4, spoken(lines[0][2][-1], unit), fontsize=18, ha="center")
        return
    for name, times, values in lines:
        axes.plot(times, values, label=name[:48], linewidth=1)
    axes.tick_params(labelsize=6)
    axes.grid(alpha=0.3)
    axes.yaxis.set_major_formatter(lambda value, _: spoken(value, unit))
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    if lines:
        axes.legend(fontsize=5, loc="upper left", ncol=2 if len(lines) > 6 else 1)


def draw(prometheus, begin, end, path):
    """All panels, each where the dashboard has it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = board()["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = pyplot.figure(figsize=(15, rows * 0.3))
    grid = figure.add_gridspec(rows, COLUMNS, hspace=0.9, wspace=3, left=0.05, right=0.99)
    figure.subplots_adjust(top=0.985, bottom=0.015)
    for panel in panels:
        at = panel["gridPos"]
        axes = figure.add_subplot(
            grid[at["y"] : at["y"] + max(1, at["h"] - 1), at["x"] : at["x"] + at["w"]]
        )
        if panel["type"] == "row":
            axes.set_axis_off()
            axes.text(0, 1.2, panel["title"], fontsize=11, weight="bold")
        else:
            draw_one(axes, panel, series(prometheus, panel, begin, end))
    figure.savefig(path, dpi=72)
    pyplot.close(figure)
