"""Line charts as SVG, large enough to be read on a phone."""

import html
import math
from dataclasses import dataclass

WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 54, 12, 12, 46
MARGIN, LETTER = 12.0, 8.4  # of the legend; letters at most this wide on average
COLOURS = ("#1f5fa8", "#c8501e", "#2e7d32", "#7b3fa0", "#a86b00", "#00808a", "#b3245c", "#5d6470", "#4a3fbf", "#7a8500")


@dataclass(frozen=True)
class Series:
    """Points ``(x, y, spread)``; ``spread`` is one standard deviation, 0 if there is none. ``dashed``: not measured."""

    name: str
    points: tuple[tuple[float, float, float], ...]
    colour: int
    dashed: bool = False
    joined: bool = True
    dots: bool = True


def chart(series: list[Series], x_label: str, y_label: str, names: dict[float, str] | None = None) -> str:
    """An SVG of these series with a legend below. ``names`` labels places on the x axis instead of numbers."""
    xs = [x for s in series for x, _, _ in s.points]
    ys = [y + sign * spread for s in series for _, y, spread in s.points for sign in (-1, 1)]
    x_low, x_high = (min(names) - 0.5, max(names) + 0.5) if names else _padded(min(xs), max(xs), 0.04)
    y_ticks = _ticks(*_padded(min(ys), max(ys), 0.08))
    y_low, y_high = min(y_ticks[0], min(ys)), max(y_ticks[-1], max(ys))
    x_ticks = list(names) if names else [x for x in _ticks(min(xs), max(xs)) if x_low <= x <= x_high]

    def at(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
        return across, TOP + (y_high - y) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    legend = _legend(series)
    height = HEIGHT + 20 * len(legend)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="DejaVu Sans, Verdana, sans-serif" font-size="13">',
        f"<title>{html.escape(y_label)} over {html.escape(x_label)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
    ]
    for y in y_ticks:
        across, down = at(x_low, y)
        parts.append(f'<path d="M{across:.1f} {down:.1f}H{WIDTH - RIGHT}" stroke="#dde3ea"/>')
        parts.append(_text(LEFT - 6, down + 4.5, f"{y:g}", "end"))
    for x in x_ticks:
        across, down = at(x, y_low)
        parts.append(f'<path d="M{across:.1f} {down:.1f}v4" stroke="#1c2430"/>')
        parts.append(_text(across, down + 18, names[x] if names else f"{x:g}", "middle"))
    parts.append(f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="#1c2430"/>')
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label, "middle"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<g transform="translate(13 {middle}) rotate(-90)">{_text(0, 0, y_label, "middle")}</g>')
    for s in series:
        parts += _draw(s, [(*at(x, y), at(x, y - e)[1], at(x, y + e)[1]) for x, y, e in s.points])
    for row, entries in enumerate(legend):
        parts += _legend_row(entries, HEIGHT + 12 + 20 * row)
    return "".join([*parts, "</svg>"])


def _draw(s: Series, places: list[tuple[float, float, float, float]]) -> list[str]:
    colour, parts = COLOURS[s.colour % len(COLOURS)], []
    if s.joined and len(places) > 1:
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{_dash(s)}/>')
    for x, y, low, high in places:
        if low != high:
            bar = f"M{x:.1f} {low:.1f}V{high:.1f}M{x - 4:.1f} {low:.1f}h8M{x - 4:.1f} {high:.1f}h8"
            parts.append(f'<path d="{bar}" stroke="{colour}" stroke-width="1.5"/>')
        if s.dots:
            parts.append(_dot(x, y, colour, s.dashed))
    return parts


def _legend(series: list[Series]) -> list[list[tuple[float, Series]]]:
    """Rows of entries with where each begins."""
    rows: list[list[tuple[float, Series]]] = [[]]
    x = MARGIN
    for s in series:
        width = 28 + LETTER * len(s.name) + 12
        if rows[-1] and x + width > WIDTH:
            rows.append([])
            x = MARGIN
        rows[-1].append((x, s))
        x += width
    return rows


def _legend_row(entries: list[tuple[float, Series]], y: float) -> list[str]:
    parts = []
    for x, s in entries:
        colour = COLOURS[s.colour % len(COLOURS)]
        parts.append(f'<path d="M{x:.1f} {y}h22" stroke="{colour}" stroke-width="2"{_dash(s)}/>' if s.joined else "")
        parts.append(_dot(x + 11, y, colour, s.dashed) if s.dots else "")
        parts.append(_text(x + 28, y + 4.5, s.name, "start"))
    return parts


def _dot(x: float, y: float, colour: str, hollow: bool) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{"#fff" if hollow else colour}" stroke="{colour}"/>'


def _dash(s: Series) -> str:
    return ' stroke-dasharray="5 4"' if s.dashed else ""


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#1c2430">{html.escape(text)}</text>'


def _padded(low: float, high: float, share: float) -> tuple[float, float]:
    pad = (high - low) * share or max(abs(high) * 0.01, 0.5)
    return low - pad, high + pad


def _ticks(low: float, high: float) -> list[float]:
    """Four to nine round numbers that span low to high."""
    if high <= low:
        return [low]
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough)
    return [round(i * step, 10) for i in range(math.floor(low / step), math.ceil(high / step) + 1)]
