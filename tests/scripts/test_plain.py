from __future__ import annotations

import re

import pytest

from scripts.page import COMMENT, KINDS
from scripts.plain import read_plain
from scripts.project import Project

SITE = Project()
PAGE = """\
---
description: One sentence.
---

# Why √d<sub>k</sub> { #why }

A number, <data value="given: here">0.50</data>, and `<data value="x">1</data>` in code.

## Exercises { data-search-exclude }

<details markdown="1" data-search-exclude>
<summary>Code</summary>

<!-- imports -->
```python
import math
```

<!-- source: tiny.text -->
<!--pytest-codeblocks:cont-->
```python
text = '''
<details markdown="1">
'''
```

</details>

<!-- figure: line -->
![A line.](../line-light.svg#only-light)
![A line.](../line-dark.svg#only-dark)

- [A source](https://example.org)
  { #source }
"""
PLAIN = """\
# <a id="why"></a>Why √d<sub>k</sub>

A number, 0.50, and `<data value="x">1</data>` in code.

## Exercises

<details>
<summary>Code</summary>

```python
import math
```

```python
text = '''
<details markdown="1">
'''
```

</details>

![A line.](../line-light.svg)

- [A source](https://example.org)
  <a id="source"></a>
"""


def test_what_only_this_project_reads_goes_and_all_else_stays(project: Project) -> None:
    project.markdown("page").write_text(PAGE, encoding="utf-8")
    assert read_plain(project, "page").markdown() == PLAIN


def test_a_part_is_what_the_whole_has_there(project: Project) -> None:
    project.markdown("page").write_text(PAGE, encoding="utf-8")
    plain = read_plain(project, "page")
    for cut in (PAGE.index("<details"), PAGE.index("</details>"), PAGE.index("- [A source")):
        assert plain.markdown(0, cut) + plain.markdown(cut) == PLAIN


@pytest.mark.parametrize("page", SITE.names())
def test_no_page_keeps_a_directive_or_a_binding(page: str) -> None:
    text = read_plain(SITE, page).markdown()
    assert text.startswith("# ")
    prose = re.sub(r"^~~~.*?^~~~$", "", text, flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"(`+).*?\1", "", prose, flags=re.DOTALL)
    assert "<data" not in prose
    assert "pytest-codeblocks" not in prose
    assert not [match for match in COMMENT.finditer(prose) if match[1] in KINDS]
