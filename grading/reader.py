"""A place in a text, and what comes next there."""

from __future__ import annotations


class Reader:
    """Moves over a text token by token; white space between tokens says nothing."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0

    def space(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def peek(self, *tokens: str) -> str | None:
        """Return the token that comes next, if it is one of `tokens`; a command must not run on in letters."""
        self.space()
        for token in tokens:
            if self.text.startswith(token, self.at):
                behind = self.text[self.at + len(token) : self.at + len(token) + 1]
                if not (token[-1].isalpha() and behind.isalpha()):
                    return token
        return None

    def take(self, *tokens: str) -> str | None:
        token = self.peek(*tokens)
        if token:
            self.at += len(token)
        return token
