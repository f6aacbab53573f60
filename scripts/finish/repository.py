"""Mends the links to the repository, which the theme makes where mkdocs.yml gives its address."""

from __future__ import annotations

from scripts.finish.built import Built
from scripts.project import Problem


def mend_repository(built: Built) -> list[Problem]:
    """Have each page's edit link lead to its source, and no script ask the code host for counts."""
    for page in built.pages.values():
        for link in page.root.xpath("//a[@data-md-component='source']"):
            del link.attrib["data-md-component"]  # by which the theme's script finds it
        for link in page.root.xpath("//a[@rel='edit']"):
            if "://" not in link.get("href"):  # Zensical links to nowhere where no address is set
                link.drop_tree()
            elif page.page is not None:  # a lab's source is a script, not the notebook in docs/
                root = link.get("href").rpartition("docs/")[0]
                link.set("href", root + built.project.relative(built.project.source(page.page)))
    return []
