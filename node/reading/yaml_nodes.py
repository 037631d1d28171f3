"""Strict YAML: a tree in which every value knows its line, and nothing is guessed.

YAML 1.1 rewrites what it thinks it knows (`on` to true, `1:30` to 90, `010` to 8), merges and
repeats nodes by alias, and keeps the last of two equal keys. A scenario must mean what it shows, so
all of that is refused, with the place and the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import yaml

from stormcast.node.core.errors import ConfigError, Place, shortened, suggestion
from stormcast.node.reading.items import Item, bounds_in_words, parsed
from stormcast.node.reading.parsing import Loader, check_size, parse, place_of
from stormcast.node.reading.quantities import SETTING_SIZE, Quantity

MAX_DEPTH: Final = 12
"""A scenario needs six levels; far more would exhaust the stack of the composer."""

_STRING: Final = "tag:yaml.org,2002:str"
_MERGE: Final = "tag:yaml.org,2002:merge"
SWITCHES: Final = frozenset({"on", "off", "yes", "no", "y", "n"})
"""Words that YAML 1.1 takes for booleans."""
_SEXAGESIMAL: Final = re.compile(r"[-+]?[0-9]+(:[0-9]+)+(\.[0-9]*)?")
_PADDED: Final = re.compile(r"[-+]?0[0-9_]+")
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,18})")


@dataclass(frozen=True, slots=True)
class YamlItem(Item):
    """One value of the file, and what it is called there."""

    node: yaml.Node
    path: str
    key: str

    @property
    def place(self) -> Place:
        return place_of(self.node.start_mark, self.path)

    @property
    def name(self) -> str:
        return str(self.node.value)

    def shown(self) -> str:
        if isinstance(self.node, yaml.ScalarNode):
            return repr(shortened(self.node.value))
        return "a mapping" if isinstance(self.node, yaml.MappingNode) else "a list"

    def is_list(self) -> bool:
        return isinstance(self.node, yaml.SequenceNode)

    def is_mapping(self) -> bool:
        return isinstance(self.node, yaml.MappingNode)

    def pairs(self) -> list[tuple[YamlItem, YamlItem]]:
        """Return the keys and values of a mapping; refuse a key that is there twice."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.refuse("write a mapping (key: value)")
        pairs: list[tuple[YamlItem, YamlItem]] = []
        first_lines: dict[str, int] = {}
        for key_node, value_node in self.node.value:
            key = YamlItem(key_node, self.path, f"a key of {self.key}")
            if not isinstance(key_node, yaml.ScalarNode):
                raise key.error(f"{self.key}: a key must be a word, this one is {key.shown()}")
            key._check_plain()
            name = key_node.value
            if name in first_lines:
                raise key.error(
                    f"{self.key}: duplicate key {key.shown()}, first on line "
                    f"{first_lines[name]}; keep one"
                )
            first_lines[name] = key.place.line
            pairs.append((key, YamlItem(value_node, self.path, shortened(name))))
        return pairs

    def items(self) -> list[YamlItem]:
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.refuse("write a list ([a, b])")
        return [YamlItem(node, self.path, self.key) for node in self.node.value]

    def unknown(self, key: Item, noun: str, known: Collection[str]) -> ConfigError:
        return key.error(f"{self.key}: unknown {noun} {key.shown()}{suggestion(key.name, known)}")

    def ends(self) -> list[YamlItem]:
        value = self._word("write a value such as 5, or a range such as 5..9")
        parts = value.split("..")
        if len(parts) > 2:  # noqa: PLR2004 a range has two ends
            raise self.refuse("write a range such as 5..9")
        style = None if self.is_plain() else '"'
        marks = self.node.start_mark, self.node.end_mark
        nodes = [yaml.ScalarNode(_STRING, part, *marks, style=style) for part in parts]
        return [YamlItem(node, self.path, self.key) for node in nodes]

    def text(self, remedy: str = "write text") -> str:
        """Return any text; it must be quoted if YAML takes it for something else."""
        value = self._word(remedy)
        if self.node.tag != _STRING:
            raise self.refuse("YAML takes it for something else than text; put it in quotes")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self.refuse("it holds half a surrogate pair; write the whole character") from None
        return value

    def word(self, pattern: re.Pattern[str], remedy: str) -> str:
        value = self._word(remedy)
        if self.node.tag != _STRING or pattern.fullmatch(value) is None:
            raise self.refuse(remedy)
        return value

    def whole(self, low: int, high: int) -> int:
        value = self._word("write a whole number")
        if _INTEGER.fullmatch(value) is None or not self.is_plain():
            raise self.refuse("write a whole number, without unit or quotes")
        number = int(value)
        if not low <= number <= high:
            raise self.refuse(bounds_in_words(low, high))
        return number

    def flag(self) -> bool:
        value = self._word("write true or false")
        if value not in ("true", "false") or not self.is_plain():
            raise self.refuse("write true or false, in small letters and without quotes")
        return value == "true"

    def quantity(self, quantity: Quantity) -> float:
        value = self._word(f"write {quantity.kind} such as {quantity.example}")
        return parsed(self, value, quantity)

    def amount(self, quantity: Quantity) -> float:
        return self.quantity(quantity)

    def count(self) -> int:
        remedy = "write a whole number, or a size such as 1KiB"
        value = self._word(remedy)
        if _INTEGER.fullmatch(value) is not None and self.is_plain():
            return int(value)
        if not value[-1:].isalpha():
            raise self.refuse(remedy)
        return self.size()

    def size(self) -> int:
        return int(self.quantity(SETTING_SIZE))

    def is_plain(self) -> bool:
        """Whether the value is a scalar without quotes, which YAML may reinterpret."""
        return isinstance(self.node, yaml.ScalarNode) and self.node.style is None

    def _word(self, remedy: str) -> str:
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.refuse(remedy)
        self._check_plain()
        return str(self.node.value)

    def _check_plain(self) -> None:
        """Refuse bare words that YAML 1.1 rewrites: other readers of the file would do so."""
        if not self.is_plain():
            return
        value = self.node.value
        if value.lower() in SWITCHES:
            raise self.refuse(
                "a bare on, off, yes or no is a boolean to YAML 1.1; write true, false or quotes"
            )
        if _SEXAGESIMAL.fullmatch(value):
            raise self.refuse(
                "YAML 1.1 reads this as a number to base 60; write seconds, such as 90s"
            )
        if _PADDED.fullmatch(value):
            raise self.refuse("YAML 1.1 reads a leading 0 as octal; write the number without it")
        if self.node.tag == _MERGE:
            raise self.refuse("merge keys hide what a scenario says; write the values out")


class _Strict(Loader):
    """Refuses aliases, anchors, tags and deep nesting: a file must not mean more than it shows."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        name = shortened(event.anchor or "")
        if isinstance(event, yaml.AliasEvent):
            raise self.refuse(event, f"alias *{name} is refused: write the value out")
        if name:
            raise self.refuse(event, f"anchor &{name} is refused: remove it")
        if event.tag is not None:
            raise self.refuse(event, f"tag {shortened(event.tag)!r} is refused: remove it")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.refuse(
                event, f"nested deeper than {MAX_DEPTH} levels: no {self.what} needs that"
            )
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def refuse(self, event: Any, message: str) -> ConfigError:  # noqa: ANN401 pyyaml's own are untyped
        return ConfigError(message, place_of(event.start_mark, self.source))


def compose(text: str, path: str, what: str) -> YamlItem:
    """Return the one document of a file, as a tree of values that know their place; `what` is the
    word for it in messages, such as `scenario`."""
    check_size(text.encode(errors="surrogatepass"), path)
    node = parse(_Strict(text, path, what), _Strict.get_single_node)
    if node is None:
        raise ConfigError(f"the file is empty: write a {what}", Place(path, 1, 1))
    return YamlItem(node, path, what)
