"""The effect of a change as a picture: a point and its 95 % interval on one scale, of all tasks and of each kind.

It is SVG that is drawn here, without a script, a font or an address in it, so a page that shows it asks nobody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Bar = tuple[str, int, float, float, float]
"""Name, tasks, effect and the ends of its interval."""
_LEFT, _WIDTH, _RIGHT, _ROW, _TOP = 230, 420, 150, 26, 46
_BETTER, _WORSE, _UNSURE = "#1a7f37", "#cf222e", "#57606a"


def effect_svg(bars: Sequence[Bar], *, title: str) -> str:
    """The picture, as text.

    Args:
        bars: the first is of all tasks.
        title: what is measured.
    """
    ends = [abs(number) for _, _, *numbers in bars for number in numbers]
    scale = min(1.0, max(0.05, *ends) * 1.05)

    def x(value: float) -> float:
        return _LEFT + (min(max(value, -scale), scale) + scale) / (2 * scale) * _WIDTH

    width, height = _LEFT + _WIDTH + _RIGHT, _TOP + _ROW * len(bars) + 34
    bottom = _TOP + _ROW * len(bars)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="24" font-size="15" fill="#1f2328">{escape(title)}</text>',
    ]
    for value in (-scale, -scale / 2, 0.0, scale / 2, scale):
        grey = "#1f2328" if value == 0 else "#d0d7de"
        parts.append(
            f'<line x1="{x(value):.1f}" y1="{_TOP - 8}" x2="{x(value):.1f}" y2="{bottom}" stroke="{grey}"/>'
            f'<text x="{x(value):.1f}" y="{bottom + 18}" text-anchor="middle" fill="#57606a">{value:+.2g}</text>'
        )
    for number, (name, tasks, effect, low, high) in enumerate(bars):
        y = _TOP + _ROW * number + _ROW / 2
        colour = _BETTER if low > 0 else _WORSE if high < 0 else _UNSURE
        size = 5 if number == 0 else 4
        parts.append(
            f'<text x="{_LEFT - 12}" y="{y + 4:.1f}" text-anchor="end" fill="#1f2328">{escape(name)}</text>'
            f'<line x1="{x(low):.1f}" y1="{y:.1f}" x2="{x(high):.1f}" y2="{y:.1f}" stroke="{colour}" stroke-width="2"/>'
            f'<circle cx="{x(effect):.1f}" cy="{y:.1f}" r="{size}" fill="{colour}"/>'
            f'<text x="{_LEFT + _WIDTH + 12}" y="{y + 4:.1f}" fill="#57606a">{effect:+.3f}, n = {tasks}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"
