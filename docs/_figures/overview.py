"""Draws docs/_static/overview.svg: a block with DTN, and stems with Dual PatchNorm."""

from pathlib import Path

OUT = Path(__file__).resolve().parents[1] / '_static' / 'overview.svg'
WIDTH, HEIGHT = 660, 470
PLAIN, DTN, DPN = '#f1f5f9', '#dbeafe', '#fef3c7'
INK = '#334155'
STEP = 56


def text(x: float, y: float, words: str, size: int = 15, weight: str = 'normal') -> str:
    return f'<text x="{x}" y="{y}" text-anchor="middle" font-size="{size}" font-weight="{weight}">{words}</text>'


def box(x: float, y: float, words: str, fill: str) -> str:
    bold = 'normal' if fill == PLAIN else 'bold'
    rectangle = f'<rect x="{x - 70}" y="{y}" width="140" height="34" rx="6" fill="{fill}" stroke="{INK}"/>'
    return rectangle + text(x, y + 22, words, weight=bold)


def arrow(x: float, y: float, end: float) -> str:
    return f'<path d="M{x} {y} V{end - 2}" stroke="{INK}" marker-end="url(#a)"/>'


def plus(x: float, y: float) -> str:
    """The sum of a residual connection."""
    return f'<circle cx="{x}" cy="{y}" r="10" fill="white" stroke="{INK}"/>' + text(x, y + 5, '+')


def column(x: float, title: str, words: list[tuple[str, str]]) -> list[str]:
    parts = [text(x, 26, title, weight='bold')]
    for i, (word, fill) in enumerate(words):
        parts += [box(x, 46 + i * STEP, word, fill)]
        if i:
            parts.append(arrow(x, 46 + (i - 1) * STEP + 34, 46 + i * STEP))
    return parts


def block(x: float) -> list[str]:
    parts = [text(x, 26, 'Block', weight='bold'), box(x, 46, 'tokens', PLAIN)]
    top = 46 + 34
    for layer in ('attention', 'MLP'):
        norm, inside, total = top + 26, top + 26 + STEP, top + 26 + 2 * STEP + 4
        parts += [
            arrow(x, top, norm),
            box(x, norm, 'DTN', DTN),
            arrow(x, norm + 34, inside),
            box(x, inside, layer, PLAIN),
            arrow(x, inside + 34, total - 10),
            f'<path d="M{x} {top + 10} H{x + 88} V{total} H{x + 12}" fill="none" stroke="{INK}" marker-end="url(#a)"/>',
            plus(x, total),
        ]
        top = total + 10
    return [*parts, arrow(x, top, top + 22), box(x, top + 22, 'tokens', PLAIN)]


def main() -> None:
    vit = [('patches', PLAIN), ('LayerNorm', DPN), ('linear', PLAIN), ('LayerNorm', DPN)]
    pyramid = [('patches', PLAIN), ('LayerNorm', DPN), ('linear', PLAIN), ('LayerNorm', PLAIN)]
    marker = (
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>'
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="Helvetica, Arial, '
        f'sans-serif" fill="#0f172a">{marker}<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *block(90),
        *column(325, 'ViT stem', [*vit, ('+ positions', PLAIN), ('tokens', PLAIN)]),
        *column(540, 'PVT, PVTv2, Swin stem', [*pyramid, ('tokens', PLAIN)]),
        f'<rect x="265" y="404" width="18" height="18" rx="4" fill="{DTN}" stroke="{INK}"/>',
        '<text x="293" y="418" font-size="15">DTN, instead of LayerNorm</text>',
        f'<rect x="265" y="434" width="18" height="18" rx="4" fill="{DPN}" stroke="{INK}"/>',
        '<text x="293" y="448" font-size="15">added by Dual PatchNorm</text>',
        '</svg>\n',
    ]
    OUT.write_text('\n'.join(parts))


if __name__ == '__main__':
    main()
