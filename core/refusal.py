"""A request that cannot be served, as a sentence in the visitor's language.

Everything a person can cause (a wrong setting, a broken file, a full server) is raised as a `Refusal`. It carries a key
of the word catalogue and the values that fill it, so the command line prints it in English and a page in the language
of its visitor. Programming errors stay ordinary exceptions.
"""

from __future__ import annotations

from core.words import sentence


class Refusal(Exception):
    """A refusal with its reason: `Refusal("model.unknown_architecture", architecture="gpt2")`."""

    def __init__(self, key: str, **values: object) -> None:
        super().__init__(key)
        self.key = key
        self.values = values

    def sentence(self, language: str = "en") -> str:
        """The reason and the remedy in `language`."""
        return sentence(self.key, language, **self.values)

    def __str__(self) -> str:
        return self.sentence()
