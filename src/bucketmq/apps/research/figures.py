"""Figures of a study as SVG, drawn by us: the same bytes for the same findings, readable in light and dark. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape

from bucketmq.apps.research.plan import Metric, Plan
from bucketmq.apps.research.synthesis import Findings, Point, label_of

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 76, 20, 40, 56
SERIES_MAX = 6
ROWS_MAX = 30
COLOURS = ("#4a78ee", "#c0562c", "#1a7f4b", "#8a3fc4", "#b0870a", "#00798c")

STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1b2130}.m{fill:#5c667c}.t{font-weight:600;font-size:14px}"
    ".g{stroke:#dfe3ec}.b{fill:#fff}.f{fill:none;stroke:#1a7f4b;stroke-width:2;stroke-dasharray:5 4}"
    "@media(prefers-color-scheme:dark){text{fill:#e8ebf3}.m{fill:#9aa5bb}.g{stroke:#313949}.b{fill:#1a1f2a}"
    ".f{stroke:#5fd39b}}"
)


def draw(findings: Findings) -> dict[str, bytes]:
    """Name of the file -> SVG: one for each metric, and the Pareto front where there are two metrics."""
    plan = findings.plan
    made = {f"{metric.name}.svg": _metric(findings, metric) for metric in plan.metrics}
    if len(plan.metrics) > 1:
        made["pareto-front.svg"] = _front(findings)
    return {name: text.encode() for name, text in made.items() if text}


def _metric(findings: Findings, metric: Metric) -> str:
    points = [each for each in findings.points if metric.name in each.metrics]
    if not points:
        return ""
    along = _axis(findings.plan, points)
    return _lines(findings, metric, points, along) if along else _rows(findings, metric, points)


def _axis(plan: Plan, points: Sequence[Point]) -> str | None:
    """The parameter to draw along: the first number with several values, if the rest makes few enough series."""
    for name in points[0].parameters:
        values = {each.parameters[name] for each in points}
        if name in plan.fixed or len(values) < 3 or not all(_is_number(each) for each in values):
            continue
        if len({_rest(plan, each, name) for each in points}) <= SERIES_MAX:
            return name
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _rest(plan: Plan, point: Point, name: str) -> str:
    left = {key: value for key, value in point.parameters.items() if key != name}
    return label_of(plan, left) if set(left) - set(plan.fixed) else ""


def _lines(findings: Findings, metric: Metric, points: Sequence[Point], along: str) -> str:
    series: dict[str, list[Point]] = {}
    for each in points:
        series.setdefault(_rest(findings.plan, each, along), []).append(each)
    xs = [float(each.parameters[along]) for each in points]
    x, ticks = _scale(xs, LEFT, WIDTH - RIGHT)
    ys = [edge for each in points for edge in _edges(each, metric.name)]
    top = TOP + 18 * math.ceil(len(series) / 2) if len(series) > 1 else TOP
    y, levels = _scale(ys, HEIGHT - BOTTOM, top)
    body = [*_grid(levels, y), *_ticks(ticks, x), _axis_name(along)]
    for number, (name, members) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        members.sort(key=lambda each: float(each.parameters[along]))
        spots = [(x(float(each.parameters[along])), each) for each in members]
        path = " ".join(f"{at:.1f},{y(each.metrics[metric.name].mean):.1f}" for at, each in spots)
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5" opacity="0.6"/>')
        for at, each in spots:
            low, high = (y(edge) for edge in _edges(each, metric.name))
            body.append(f'<path d="M{at:.1f} {low:.1f}V{high:.1f}" stroke="{colour}" stroke-width="2"/>')
            body.append(f'<circle cx="{at:.1f}" cy="{y(each.metrics[metric.name].mean):.1f}" r="3.5" fill="{colour}"/>')
        if len(series) > 1:
            column, row = number % 2, number // 2
            left, base = LEFT + column * 310, TOP + 4 + row * 18
            body.append(f'<circle cx="{left + 5}" cy="{base - 4}" r="4" fill="{colour}"/>')
            body.append(f'<text x="{left + 15}" y="{base}">{escape(_cut(name, 44))}</text>')
    return _svg(f"{metric.name} by {along}", body)


def _rows(findings: Findings, metric: Metric, points: Sequence[Point]) -> str:
    sign = 1 if metric.goal == "min" else -1
    ranked = sorted(points, key=lambda each: (sign * each.metrics[metric.name].mean, each.label))[:ROWS_MAX]
    left, height = 300, TOP + 20 * len(ranked) + BOTTOM
    x, ticks = _scale([edge for each in ranked for edge in _edges(each, metric.name)], left, WIDTH - RIGHT)
    body = []
    for value in ticks:
        body.append(f'<path class="g" d="M{x(value):.1f} {TOP}V{height - BOTTOM}"/>')
        body.append(
            f'<text class="m" x="{x(value):.1f}" y="{height - BOTTOM + 18}" text-anchor="middle">{_n(value)}</text>'
        )
    for number, each in enumerate(ranked):
        base = TOP + 20 * number + 12
        low, high = (x(edge) for edge in _edges(each, metric.name))
        body.append(f'<text x="{left - 12}" y="{base + 4}" text-anchor="end">{escape(_cut(each.label, 46))}</text>')
        body.append(f'<path d="M{low:.1f} {base}H{high:.1f}" stroke="{COLOURS[0]}" stroke-width="2"/>')
        body.append(f'<circle cx="{x(each.metrics[metric.name].mean):.1f}" cy="{base}" r="3.5" fill="{COLOURS[0]}"/>')
    title = f"{metric.name}, best first" if len(ranked) == len(points) else f"{metric.name}, the best points"
    return _svg(title, body, height)


def _front(findings: Findings) -> str:
    one, other = findings.plan.metrics[:2]
    points = [each for each in findings.points if one.name in each.metrics and other.name in each.metrics]
    if not points:
        return ""
    x, ticks = _scale([each.metrics[one.name].mean for each in points], LEFT, WIDTH - RIGHT)
    y, levels = _scale([each.metrics[other.name].mean for each in points], HEIGHT - BOTTOM, TOP)
    body = [*_grid(levels, y), *_ticks(ticks, x), _axis_name(one.name)]
    spots = [(x(each.metrics[one.name].mean), y(each.metrics[other.name].mean), each) for each in points]
    front = sorted((at, level) for at, level, each in spots if each.on_front)
    path = " ".join(f"{at:.1f},{level:.1f}" for at, level in front)
    body.append(f'<polyline class="f" points="{path}"/>')
    for at, level, each in spots:
        colour, size = (COLOURS[2], 5) if each.on_front else (COLOURS[0], 3.5)
        body.append(f'<circle cx="{at:.1f}" cy="{level:.1f}" r="{size}" fill="{colour}"/>')
    return _svg(f"{other.name} against {one.name}: the Pareto front", body)


def _edges(point: Point, metric: str) -> tuple[float, float]:
    found = point.metrics[metric]
    low = found.mean if found.low is None else found.low
    return low, found.mean if found.high is None else found.high


def _scale(values: Iterable[float], start: float, end: float) -> tuple[Callable[[float], float], list[float]]:
    """From values to places, and round values to mark."""
    found = list(values)
    low, high = min(found), max(found)
    if high - low < 1e-12 * max(1.0, abs(high)):
        low, high = low - max(abs(low), 1.0) / 2, high + max(abs(high), 1.0) / 2
    step = _step((high - low) / 5)
    ticks = [number * step for number in range(math.floor(low / step), math.ceil(high / step) + 1)]
    first, last = ticks[0], ticks[-1]

    def place(value: float) -> float:
        return start + (value - first) / (last - first) * (end - start)

    return place, ticks


def _step(rough: float) -> float:
    size: float = 10.0 ** math.floor(math.log10(rough))
    return next((factor * size for factor in (1, 2, 5) if factor * size >= rough), 10 * size)


def _grid(levels: Iterable[float], y: Callable[[float], float]) -> list[str]:
    made = []
    for value in levels:
        made.append(f'<path class="g" d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}"/>')
        made.append(f'<text class="m" x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{_n(value)}</text>')
    return made


def _ticks(ticks: Iterable[float], x: Callable[[float], float]) -> list[str]:
    base = HEIGHT - BOTTOM + 18
    return [f'<text class="m" x="{x(each):.1f}" y="{base}" text-anchor="middle">{_n(each)}</text>' for each in ticks]


def _axis_name(name: str) -> str:
    middle = (LEFT + WIDTH - RIGHT) / 2
    return f'<text class="m" x="{middle:.0f}" y="{HEIGHT - 14}" text-anchor="middle">{escape(name)}</text>'


def _n(value: float) -> str:
    return f"{value:.6g}".replace("-", "\u2212") if value else "0"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _svg(title: str, body: Iterable[str], height: int = HEIGHT) -> str:
    lines = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img"><title>{escape(title)}</title><style>{STYLE}</style>'
        f'<rect class="b" width="{WIDTH}" height="{height}" rx="8"/>\n'
        f'<text class="t" x="{LEFT if height == HEIGHT else 16}" y="22">{escape(title)}</text>\n{lines}\n</svg>\n'
    )
