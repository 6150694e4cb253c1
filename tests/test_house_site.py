"""The documentation as a site: every link leads somewhere, and nothing is loaded from elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import house_site
import pytest


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    house_site.build(folder)
    return folder


def test_no_link_and_no_anchor_of_the_site_is_dead(site: Path) -> None:
    assert not house_site.dead_links(site)


def test_every_page_of_the_documentation_is_in_the_site_and_the_guides_in_its_navigation(
    site: Path, repository: Path
) -> None:
    for page in (repository / "docs").rglob("*.md"):
        assert (site / house_site.place(page)).is_file(), page
    listed = {page for pages in house_site.NAVIGATION.values() for page in pages}
    guides = {page.relative_to(repository).as_posix() for page in (repository / "docs").glob("*.md")}
    assert guides <= listed, f"not in the navigation: {sorted(guides - listed)}"
    assert 'href="cli.html"' in (site / "index.html").read_text()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="nowhere.html">x</a>', "there is no nowhere.html"),
        ('<a href="cli.html#nothing-of-the-kind">x</a>', "names no heading"),
        ('<img src="https://example.org/x.png">', "loads https://example.org/x.png"),
        ("<script>1</script>", "loads script:"),
    ],
)
def test_a_dead_link_and_a_request_elsewhere_are_found(
    site: Path, tmp_path: Path, body: str, problem: str
) -> None:
    shutil.copytree(site, tmp_path / "site")
    (tmp_path / "site" / "bad.html").write_text(body)
    (found,) = house_site.dead_links(tmp_path / "site")
    assert problem in found


def test_markup_in_a_page_is_shown_and_not_obeyed(site: Path) -> None:
    assert "<script" not in "".join(path.read_text() for path in site.rglob("*.html"))
