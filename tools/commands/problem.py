"""Whatever stops a command ends in one sentence that says what, where and what to do."""

from __future__ import annotations


class Problem(Exception):
    """One sentence for the user; the command exits with `code`. A value."""

    def __init__(self, sentence: str, code: int = 1) -> None:
        super().__init__(sentence)
        self.code = code
