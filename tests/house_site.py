"""Builds the documentation as a site of plain HTML: no script, no outside request, and no link that leads nowhere.

    python tests/house_site.py FOLDER

Pages are README.md, CONTRIBUTING.md, CHANGELOG.md and everything below docs; files of the repository that a page links
to are pages, too.  `dead_links` reads the HTML that was written, whoever wrote it.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_by_name, get_lexer_for_filename
from pygments.util import ClassNotFound

ROOT = Path(__file__).resolve().parent.parent
NAVIGATION: Mapping[str, Sequence[str]] = {
    "Start": (
        "README.md",
        "docs/my-agent.md",
        "docs/my-prompt.md",
        "docs/my-model.md",
        "docs/coming-from.md",
    ),
    "Guides": (
        "docs/thumbs.md",
        "docs/one-prompt.md",
        "docs/evolution.md",
        "docs/training.md",
        "docs/server.md",
        "docs/permissions.md",
        "docs/integrations.md",
        "docs/import.md",
        "docs/evaluators.md",
        "docs/verdict.md",
        "docs/issues.md",
        "docs/canary.md",
        "docs/autopilot.md",
        "docs/tasks.md",
    ),
    "Reference": (
        "docs/cli.md",
        "docs/nouns.md",
        "docs/entrances.md",
        "docs/claims.md",
        "docs/references.md",
    ),
    "Project": ("docs/decisions/000-index.md", "CONTRIBUTING.md", "CHANGELOG.md"),
}
STYLE = """\
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --link: #2563a8 }
@media (prefers-color-scheme: dark) { :root { --link: #7db4ec } }
body { margin: 0; font: 16px/1.55 system-ui, sans-serif }
body { display: grid; grid-template-columns: 15rem minmax(0, 1fr) }
nav { padding: 1.5rem 1rem; border-right: 1px solid var(--line); font-size: .9rem }
nav h2 { font-size: .8rem; text-transform: uppercase; letter-spacing: .05em; margin: 1.2rem 0 .3rem; opacity: .7 }
nav ul { list-style: none; margin: 0; padding: 0 }
nav li { margin: .15rem 0 }
nav [aria-current] { font-weight: 700 }
main { padding: 1.5rem 2rem 4rem; max-width: 52rem; min-width: 0 }
a { color: var(--link) }
h1, h2, h3 { line-height: 1.25; margin-top: 1.8em }
h1 { margin-top: 0 }
pre { overflow-x: auto; padding: .8rem 1rem; background: var(--soft); border-radius: 6px; font-size: .85rem }
code { font-family: ui-monospace, monospace }
:not(pre) > code { background: var(--soft); padding: .1em .3em; border-radius: 4px }
table { border-collapse: collapse; display: block; overflow-x: auto }
td, th { border: 1px solid var(--line); padding: .3rem .6rem; text-align: left }
img { max-width: 100% }
@media (max-width: 50rem) {
  body { display: block }
  nav { border: 0; border-bottom: 1px solid var(--line) }
  main { padding: 1rem }
}
"""
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def slug(heading: str, taken: Mapping[str, int]) -> str:
    """The anchor of a heading, as GitHub makes it; a repeated one has a number."""
    words = re.sub(r"[^\w\- ]", "", heading.casefold()).replace(" ", "-")
    count = taken.get(words, 0)
    return f"{words}-{count}" if count else words


def place(path: Path) -> str:
    """Where a file of the repository stands in the site."""
    relative = path.relative_to(ROOT).as_posix()
    if relative == "README.md":
        return "index.html"
    if path.suffix == ".md":
        return relative.removesuffix(".md").removeprefix("docs/") + ".html"
    if path.suffix == ".svg":
        return relative.removeprefix("docs/")
    return f"files/{relative or 'repository'}.html"


def build(folder: Path) -> list[Path]:
    """Write the site into an empty or a former site's folder; returns the pages."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "style.css").write_text(
        STYLE + HtmlFormatter(style="tango").get_style_defs("pre"), encoding="utf-8"
    )
    waiting = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
    written: dict[Path, Path] = {}
    while waiting:
        source = waiting.pop()
        if source in written:
            continue
        target = folder / place(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        written[source] = target
        if source.suffix == ".svg":
            shutil.copyfile(source, target)
        elif source.suffix == ".md":
            title, body, linked = _page(source)
            waiting += linked
            target.write_text(_framed(source, title, body), encoding="utf-8")
        else:
            body, linked = _listing(source) if source.is_dir() else (_source(source), [])
            target.write_text(_framed(source, source.relative_to(ROOT).as_posix(), body), encoding="utf-8")
    return sorted(written.values())


def _page(source: Path) -> tuple[str, str, list[Path]]:
    """Title, HTML and linked files of a Markdown page."""
    tokens = _MARKDOWN.parse(source.read_text(encoding="utf-8"))
    taken: dict[str, int] = {}
    linked: list[Path] = []
    title = source.stem
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == "heading_open" and after is not None:
            text = "".join(child.content for child in after.children or ())
            anchor = slug(text, taken)
            taken[slug(text, {})] = taken.get(slug(text, {}), 0) + 1
            token.attrSet("id", anchor)
            title = text if token.tag == "h1" else title
        for child in token.children or ():
            linked += _linked(source, child)
        if token.type == "fence":
            token.type, token.content = "html_block", _coloured(token.content, token.info.split(" ")[0])
    return title, _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}), linked


def _linked(source: Path, token: Token) -> Iterator[Path]:
    """The file that a link or picture names, whose address becomes that of its page."""
    name = {"link_open": "href", "image": "src"}.get(token.type, "")
    address = str(token.attrGet(name) or "")
    path, mark, anchor = address.partition("#")
    if not path or "://" in address or address.startswith("mailto:"):
        return
    file = Path(os.path.normpath(source.parent / unquote(path)))
    token.attrSet(name, os.path.relpath(place(file), Path(place(source)).parent) + mark + anchor)
    if file.exists():  # one that does not is found by who looks for dead links
        yield file


def _coloured(text: str, language: str) -> str:
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        lexer = TextLexer()
    return f"<pre><code>{highlight(text, lexer, HtmlFormatter(nowrap=True))}</code></pre>\n"


def _source(path: Path) -> str:
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        lexer = get_lexer_for_filename(path.name)
    except ClassNotFound:
        lexer = TextLexer()
    name = html.escape(path.relative_to(ROOT).as_posix())
    return f"<h1>{name}</h1><pre><code>{highlight(text, lexer, HtmlFormatter(nowrap=True))}</code></pre>"


def _listing(folder: Path) -> tuple[str, list[Path]]:
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith((".", "__pycache__")))
    rows = "".join(f"<li>{html.escape(name)}</li>" for name in names)
    return f"<h1>{html.escape(folder.relative_to(ROOT).as_posix())}</h1><ul>{rows}</ul>", []


def _framed(source: Path, title: str, body: str) -> str:
    here = Path(place(source)).parent
    parts = []
    for heading, pages in NAVIGATION.items():
        rows = []
        for page in pages:
            path = ROOT / page
            current = ' aria-current="page"' if path == source else ""
            rows.append(f'<li><a href="{os.path.relpath(place(path), here)}"{current}>{_name(path)}</a></li>')
        parts.append(f"<h2>{heading}</h2><ul>{''.join(rows)}</ul>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{html.escape(title)}</title><link rel="stylesheet" href="{os.path.relpath("style.css", here)}">'
        f"</head><body><nav>{''.join(parts)}</nav><main>{body}</main></body></html>\n"
    )


def _name(path: Path) -> str:
    """A page's name in the navigation: its first heading."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            return html.escape(
                line.removeprefix("# ").removeprefix("Tutorial: ").replace("`", "").capitalize()
            )
    return path.stem


class _Addresses(HTMLParser):
    """Anchors of a page, and the addresses that it links to or loads."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        if "id" in named:
            self.anchors.add(named["id"])
        if tag == "a" and "href" in named:
            self.links.append(named["href"])
        elif "src" in named or (tag == "link" and "href" in named):
            self.loads.append(named.get("src") or named["href"])
        if tag == "script":
            self.loads.append("script:")


def dead_links(folder: Path) -> list[str]:
    """What a site links to and does not have, and what it would load from elsewhere."""
    pages = {path: _Addresses() for path in folder.rglob("*.html")}
    for path, addresses in pages.items():
        addresses.feed(path.read_text(encoding="utf-8"))
    dead = []
    for path, addresses in pages.items():
        name = path.relative_to(folder)
        dead += [
            f"{name} loads {address}" for address in addresses.loads if ":" in address or "//" in address
        ]
        for address in (*addresses.links, *addresses.loads):
            if ":" in address.split("#")[0]:
                continue
            file, _, anchor = address.partition("#")
            target = Path(os.path.normpath(path.parent / unquote(file))) if file else path
            if not target.is_file():
                dead.append(f"{name}: there is no {address}")
            elif anchor and target in pages and unquote(anchor) not in pages[target].anchors:
                dead.append(f"{name}: {address} names no heading of that page")
    return dead


if __name__ == "__main__":
    output = Path(sys.argv[1])
    count = len(build(output))
    problems = dead_links(output)
    print("\n".join(problems) or f"{count} pages, to begin with {output / 'index.html'}")
    sys.exit(bool(problems))
