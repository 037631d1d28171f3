"""The tables of messages that applications offered and were handed."""

from __future__ import annotations

from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.tables import hand_over, outgoing
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.tables.members import MemberTables
from stormcast.pipeline.tables.records import is_kind
from stormcast.pipeline.tables.rig import RigTables


class ApplicationTables:
    """Messages on their way from one application to the other."""

    def __init__(self, events: DataFrame, rig: RigTables, members: MemberTables) -> None:
        self._events = events
        self._rig = rig
        self._members = members

    @cached_property
    def both_ends(self) -> DataFrame:
        """The events of messages on their way, of members whose traces also record what
        applications offered and were handed."""
        kinds = is_kind("offered", "cut", "sent", "abandoned", "delivered", "handed")
        return self._events.where(kinds).join(
            F.broadcast(self._tell), ["run", "short_id"], how="left_semi"
        )

    @property
    def _tell(self) -> DataFrame:
        told = F.col("version") >= words.SAYS_BOTH_ENDS
        return self._members.incarnations.where(told).select("run", "short_id")

    @cached_property
    def outgoing(self) -> DataFrame:
        """Messages that left, by the application's own numbers (see `outgoing.left`)."""
        return keep(outgoing.left(self.both_ends))

    @cached_property
    def hand_over(self) -> DataFrame:
        """Wrong hand-overs from windows to applications (see `hand_over.faults`)."""
        living = self._members.incarnations.where("lives")
        return keep(hand_over.faults(self.both_ends, living, self._rig.runs, self._tell))
