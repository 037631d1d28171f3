"""Arguments of a test as scenario files have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from stormcast.node.reading.notations import Plain

PYTHON_WORDS: Final = {"source": "from", "dest": "to"}
"""Words in place of those that Python keeps for itself."""


def words_of(words: Mapping[str, Any], **more: Any) -> dict[str, Plain]:  # noqa: ANN401 any quantity
    """Return arguments under the keys, and in the form, that scenario files have."""
    named = {PYTHON_WORDS.get(key, key): value for key, value in {**more, **words}.items()}
    return {key: plain(value) for key, value in named.items()}


def plain(value: Any) -> Plain:  # noqa: ANN401 what YAML has
    """Turn sets and tuples into lists, in an order that does not change."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return [plain(one) for one in sorted(value)]
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [plain(one) for one in value]
    assert isinstance(value, str | int), f"{value!r}: write a quantity with its unit, as a text"
    return value
