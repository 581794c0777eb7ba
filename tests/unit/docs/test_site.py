"""The site's navigation holds every page, and what builds it is pinned."""

import re

import yaml
from documented import ROOT

SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def nav_pages(node) -> list[str]:
    if isinstance(node, str):
        return [node]
    return [page for part in (node.values() if isinstance(node, dict) else node) for page in nav_pages(part)]


def test_every_page_is_in_the_navigation_once():
    there = sorted(page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md"))
    assert sorted(nav_pages(SITE["nav"])) == there


def test_the_site_loads_nothing_from_elsewhere():
    assert SITE["theme"]["font"] is False
    assert "//" not in str([SITE.get("extra_css"), SITE.get("extra_javascript")])
    # This plugin asks for a script of a CDN.
    assert "offline" not in SITE["plugins"]


def test_broken_links_and_anchors_are_warnings_that_strict_makes_errors():
    assert set(SITE["validation"]["links"].values()) | set(SITE["validation"]["nav"].values()) == {"warn"}
    build = (ROOT / "scripts/docs.sh").read_text(encoding="utf-8")
    assert "build --strict" in build
    # Warnings that are not shown are not counted either.
    assert "--quiet --clean" not in build and "--clean --quiet" not in build


def test_what_builds_the_site_is_pinned():
    lines = (ROOT / "requirements/docs.lock").read_text(encoding="utf-8").split()
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    assert {"mkdocs", "mkdocs-material"} <= {line.partition("==")[0] for line in lines}
