"""What a browser makes of a page, and names that would make it do something else."""

from __future__ import annotations

from html.parser import HTMLParser

HOSTILE = (
    "<script>alert(1)</script>\" onload='x'",
    "javascript:alert(1)//'>{{ 7 * 7 }}<a href=javascript:alert(1)>&#60;img src=x onerror=alert(1)",
    "alert\u202e\u2066gpj.exe\u200b\x1b[31m\x00\r\ufeff",
)
"""Names as a sender may choose them: markup, addresses that run, marks that turn what follows."""


class SeenPage(HTMLParser):
    """What a browser makes of a page: its elements with what runs or loads, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, ...]] = []
        self.text = ""

    @classmethod
    def of(cls, text: str) -> SeenPage:
        made = cls()
        made.feed(text)
        return made

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, *(name for name, _ in attrs)))
        for name, value in attrs:
            assert not name.startswith("on")
            if name in {"href", "src", "action"}:
                assert str(value).startswith(("/cloudfiles/", "/dags/"))

    def handle_data(self, data: str) -> None:
        self.text += data
