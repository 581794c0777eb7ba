"""Every relative link of the pages points at a file that exists, and every anchor at a heading."""

import re
from functools import cache
from pathlib import Path

import pytest
from documented import ROOT, pages

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?: \"[^\"]*\")?\)")
NAMED = re.compile(r"`((?:docs|examples|scripts|conf|benchmarks|slurm|tests|skyrl_nat|requirements)/[\w./-]+)`")
ELSEWHERE = ("scripts/setup_mcp.sh", "examples/train/multiply/main_multiply.py")
"""Paths in an answer of the policy, and in SkyRL."""
NO_PATH = re.compile(r"-v\d+$|\bNAME\b|\bshop\b")
"""Ids of environments, names to fill in, and the family that docs/add_a_family.md lets a reader write."""


def prose(page: Path) -> str:
    """Return a page without its fences."""
    return re.sub(r"^\s*```.*?^\s*```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors that headings get, by the rule of GitHub and of the site alike, and those written by hand."""
    found, text = set(), prose(page)
    for heading in re.findall(r"^#+ (.+?)\s*$", text, re.MULTILINE):
        plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        found.add(re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower()))
    return found | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))


def links_of(page: Path) -> list[str]:
    # What stands in code is none.
    return [link for link in LINK.findall(re.sub(r"`[^`\n]*`", "", prose(page))) if not re.match(r"\w+:", link)]


def fault_of(page: Path, link: str) -> str:
    """Return what is wrong with a relative link, or nothing."""
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return f"{link}: there is no such file"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return f"{link}: the page has no such heading"
    return ""


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_relative_links_and_anchors_exist(page):
    assert not [fault for link in links_of(page) if (fault := fault_of(page, link))]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_paths_that_are_named_exist(page):
    named = [name for name in NAMED.findall(prose(page)) if name not in ELSEWHERE and not NO_PATH.search(name)]
    assert not [name for name in named if not (ROOT / name).exists()]


def test_pages_of_the_site_link_to_pages_of_the_site_alone():
    # A link that leaves docs/ works in the repository and is broken on the site.
    docs = ROOT / "docs"
    outside = [
        f"{page.name}: {link}"
        for page in docs.glob("**/*.md")
        for link in links_of(page)
        if not (page.parent / link.partition("#")[0]).resolve().is_relative_to(docs)
    ]
    assert not outside


def test_a_broken_link_would_be_found(tmp_path):
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    other.write_text("# One `two`: three\n\n```text\n# not one\n```\n")
    page.write_text("[a](other.md#one-two-three) [b](other.md#not-one) [c](gone.md) [d](https://x.org/y) `[e](f)`\n")
    faults = [fault_of(page, link) for link in links_of(page)]
    assert faults == [
        "",
        "other.md#not-one: the page has no such heading",
        "gone.md: there is no such file",
    ]
