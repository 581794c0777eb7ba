"""A report as blocks, written as Markdown for a terminal or a repository and as one HTML file that needs no other.

Everything that a model or a user wrote is text here: it is escaped, never markup.
"""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

FIGURES = "figures"
"""Folder beside the Markdown file."""
STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid #8884 }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums }
table { display: block; overflow-x: auto }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #8883; text-align: left; vertical-align: top }
td.number, th.number { text-align: right }
figure { margin: 1rem 0 } figure svg { max-width: 100%; height: auto; background: #fff; border-radius: 4px }
figcaption, caption { color: #888; font-size: .9rem; text-align: left }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #8881; padding: .7rem; border-radius: 4px }
summary { cursor: pointer }
"""


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a section."""

    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of numbers and texts; numbers are shown with four digits."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | float | None]]
    """None for what is not known."""
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture."""

    svg: str
    caption: str
    """Says what is to be seen; stands for the picture where none can be shown."""


@dataclass(frozen=True, slots=True)
class Details:
    """A text of any length that is shown on demand."""

    summary: str
    text: str


Block = Heading | Text | Table | Figure | Details


@dataclass(frozen=True, slots=True)
class Page:
    """A report."""

    title: str
    blocks: list[Block] = field(default_factory=list[Block])


def write_page(page: Page, folder: Path, name: str) -> list[Path]:
    """Write `<name>.md` with its figures and `<name>.html` into a folder, and return both paths."""
    figures = [block for block in page.blocks if isinstance(block, Figure)]
    if figures:
        (folder / FIGURES).mkdir(parents=True, exist_ok=True)
    for number, figure in enumerate(figures, 1):
        (folder / _figure_file(name, number)).write_text(figure.svg, encoding="utf-8")
    paths = [folder / f"{name}.md", folder / f"{name}.html"]
    for path, text in zip(paths, (to_markdown(page, name), to_html(page)), strict=True):
        path.write_text(_without_surrogates(text), encoding="utf-8")
    return paths


def to_markdown(page: Page, name: str) -> str:
    """Return a page as Markdown; its figures are files, see `write_page`."""
    parts, num_figures = [f"# {_escaped(page.title)}"], 0
    for block in page.blocks:
        match block:
            case Heading(text):
                parts.append(f"## {_escaped(text)}")
            case Text(text):
                parts.append(_escaped(text))
            case Table():
                parts.append(_markdown_table(block))
            case Figure(_, caption):
                num_figures += 1
                parts.append(f"![{_escaped(caption)}]({_figure_file(name, num_figures)})")
            case Details(summary, text):
                fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
                parts.append(f"**{_escaped(summary)}**\n\n{fence}text\n{text}\n{fence}")
    return "\n\n".join(parts) + "\n"


def to_html(page: Page) -> str:
    """Return a page as one HTML file."""
    title = html.escape(page.title)
    body = "\n".join(map(_html_block, page.blocks))
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{STYLE}</style>\n'
        f"<h1>{title}</h1>\n{body}\n</html>\n"
    )


def shown(value: str | float | None) -> str:
    """Return a cell of a table: numbers with four digits, a dash for what is not known."""
    if value is None:
        return "—"
    return value if isinstance(value, str) else f"{value:.4g}"


def _html_block(block: Block) -> str:
    match block:
        case Heading(text):
            return f"<h2>{html.escape(text)}</h2>"
        case Text(text):
            return f"<p>{html.escape(text)}</p>"
        case Table():
            return _html_table(block)
        case Figure(svg, caption):
            picture = svg[svg.index("<svg") :]
            return f"<figure>{picture}<figcaption>{html.escape(caption)}</figcaption></figure>"
        case Details(summary, text):
            return f"<details><summary>{html.escape(summary)}</summary><pre>{html.escape(text)}</pre></details>"


def _html_table(table: Table) -> str:
    is_number = [all(not isinstance(row[i], str) for row in table.rows) for i in range(len(table.columns))]

    def line(tag: str, cells: Sequence[str | float | None]) -> str:
        kinds = (' class="number"' if number else "" for number in is_number)
        shown_cells = (
            f"<{tag}{kind}>{html.escape(shown(cell))}</{tag}>" for kind, cell in zip(kinds, cells, strict=True)
        )
        return f"<tr>{''.join(shown_cells)}</tr>"

    caption = f"<caption>{html.escape(table.caption)}</caption>" if table.caption else ""
    rows = "\n".join(line("td", row) for row in table.rows)
    return f"<table>{caption}<thead>{line('th', table.columns)}</thead>\n<tbody>{rows}</tbody></table>"


def _markdown_table(table: Table) -> str:
    def line(cells: Sequence[str | float | None]) -> str:
        return f"| {' | '.join(_escaped(shown(cell)).replace('|', chr(92) + '|') for cell in cells)} |"

    lines = [line(table.columns), f"|{'---|' * len(table.columns)}", *map(line, table.rows)]
    return "\n".join(([f"*{_escaped(table.caption)}*", ""] if table.caption else []) + lines)


def _escaped(text: str) -> str:
    """Return text that Markdown shows as it is, in one line."""
    return re.sub(r"([\\`*_<>\[\]#])", r"\\\1", " ".join(text.split()))


def _figure_file(name: str, number: int) -> str:
    return f"{FIGURES}/{name}_{number}.svg"


def _without_surrogates(text: str) -> str:
    """Return text that UTF-8 can hold; a lone surrogate in model text becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
