"""Placeholder pictures: a harbour, drawn as SVG from a file's name. The site has no photographs of its own."""

import hashlib
import itertools

_SKIES = (("#f3d9b1", "#c98474"), ("#dfe7e4", "#8fb3b8"), ("#f2e3d5", "#b7c4cf"), ("#f6d6a8", "#7a8fa6"))
_HILLS = ("#52707a", "#44606b", "#3b5560")
_SEA = "#2f4858"


def harbour(name: str, width: int, height: int) -> str:
    """Draw a harbour: hills, a sun, some boats and the sea. The name decides how it looks, and is not written in it.

    Args:
        name: the file's; the same name gives the same picture.
        width: in pixels.
        height: in pixels.
    """
    dice = itertools.cycle(hashlib.sha256(name.encode()).digest())

    def roll(least: float, most: float) -> float:
        return round(least + (most - least) * next(dice) / 255, 1)

    top, bottom = _SKIES[next(dice) % len(_SKIES)]
    w, h = float(width), float(height)
    shore = h * 0.62
    parts = [
        f'<defs><linearGradient id="sky" x2="0" y2="1"><stop stop-color="{bottom}"/>'
        f'<stop offset="1" stop-color="{top}"/></linearGradient></defs>',
        f'<rect width="{width}" height="{height}" fill="url(#sky)"/>',
        f'<circle cx="{roll(w * 0.15, w * 0.85)}" cy="{roll(h * 0.2, h * 0.5)}" r="{h * 0.07:.1f}" fill="#fff6e0"/>',
    ]
    for depth, colour in enumerate(_HILLS):
        level = shore - h * (0.16 - 0.055 * depth)
        points = " ".join(f"{w * step / 6:.1f},{level + roll(-h * 0.06, h * 0.05):.1f}" for step in range(7))
        parts.append(f'<polygon points="0,{height} {points} {width},{height}" fill="{colour}"/>')
    parts.append(f'<rect y="{shore:.1f}" width="{width}" height="{h - shore:.1f}" fill="{_SEA}"/>')
    for _ in range(2 + next(dice) % 3):
        x, y, size = roll(w * 0.1, w * 0.85), roll(shore + h * 0.06, h * 0.85), roll(h * 0.05, h * 0.09)
        parts.append(
            f'<g fill="#f4efe6"><path d="M{x},{y} l{size},0 l{-size / 5:.1f},{size / 4:.1f} l{-size * 0.6:.1f},0 z"/>'
            f'<path d="M{x + size / 2:.1f},{y - size * 0.1:.1f} v{-size} l{size * 0.45:.1f},{size} z" opacity=".85"/>'
            "</g>"
        )
    for _ in range(9):
        x, y = roll(0, w * 0.9), roll(shore + h * 0.03, h)
        parts.append(f'<rect x="{x}" y="{y}" width="{roll(w * 0.03, w * 0.12)}" height="2" fill="#fff" opacity=".18"/>')
    box = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="presentation">{"".join(parts)}</svg>'
