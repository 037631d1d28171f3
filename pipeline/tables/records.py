"""Conditions that select records."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from stormcast.pipeline import words


def is_multicast() -> Column:
    """Whether a record is of messages to the group, or of a window on them."""
    return F.coalesce(F.col("protocol").isin(*words.MULTICAST), F.lit(False))


def is_numbered() -> Column:
    """Whether messages have seqnos; those without (NO_RELIABILITY) name no protocol."""
    return F.col("protocol").isNotNull()


def is_fragment() -> Column:
    """Whether a record is of a piece of a message."""
    return F.col("flags").bitwiseAND(words.FRAGMENT) != 0


def is_kind(*kinds: str) -> Column:
    """Whether a record is of one of these kinds."""
    return F.col("kind").isin(*kinds)
