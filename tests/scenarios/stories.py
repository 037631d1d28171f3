"""What the stories run on: each generation of unicast, and each stack of a group."""

from __future__ import annotations

import pytest

from stormcast.chaos.language.cluster import GENERATIONS

STACKS = ("udp", "mcast", "tcp", "tcp-nio2", "tcp-no-retransmit")
"""NAKACK2 with retransmission on datagrams, MCAST, NAKACK2 on connections, and without
retransmission."""

every_generation = pytest.mark.parametrize("unicast", GENERATIONS)
every_stack = pytest.mark.parametrize("stack", STACKS)
