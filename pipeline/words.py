"""The numbers and words of a trace that the pipeline depends on (docs/trace-format.md)."""

from __future__ import annotations

from typing import Final

RIG: Final = 0
"""The short id of the rig."""
GROUP: Final = 0
"""The peer in records of multicasts: the group."""

UNICAST: Final = ("UNICAST", "UNICAST2", "UNICAST3", "UNICAST4")
MULTICAST: Final = ("NAKACK2", "MCAST")
"""Protocols that number multicasts: one sequence per sender, for all receivers."""

ACKED_MULTICAST: Final = "MCAST"
"""The one whose receivers ack."""

OOB: Final = 0x01
NO_FC: Final = 0x04
DONT_LOOPBACK: Final = 0x10
FRAGMENT: Final = 0x80

MOST: Final = (1 << 62) - 1
"""The largest seqno, number or bound that a record may have: sums of two fit 64 bits."""
RANGES: Final = (
    "sent",
    "delivered",
    "requested",
    "retransmitted",
    "purged",
    "offered",
    "handed",
    "abandoned",
    "answered",
)
"""Kinds of events about `lo..hi`."""
COUNTED: Final = ("sent", "delivered", "handed")
"""Kinds of events of as many messages as they have seqnos, if they have any."""
VIEW_MASK: Final = 0xFFFFFFFF
"""The bits of a view's number that a record keeps."""

SAYS_BOTH_ENDS: Final = 2
"""The first version of traces that record what applications offered and were handed."""
SAYS_WHAT_ENDED: Final = 3
"""The first version of traces that record what a member gave up at its end."""

# `stream` of a conn event.
SENDER_CLOSING: Final = 2
SENDER_REMOVED: Final = 3
RECEIVER_OPEN: Final = 5
RECEIVER_REMOVED: Final = 7

# `stream` of a credit event.
NAMED: Final = 1
BELIEVED: Final = 2
ASKED: Final = 3

OUTBOX_BYTES: Final = 5
"""`stream` of a gauge event: what waits in the outbox for a destination."""
RECEIVE_MESSAGES: Final = 3
"""`stream` of a gauge event: messages that a receive window holds."""
RECEIVE_WINDOW: Final = (3, 4)
"""`stream` of a gauge event: messages and bytes that a receive window holds."""

# `stream` of a delivered, handed, requested, suspect and view event.
WHOLE: Final = 0
JOINED: Final = 1
REPAIR: Final = 0
JOINING: Final = 1
CONFIRMED: Final = 2
CLEARED: Final = 3
REGULAR: Final = 0
MERGE: Final = 1

DIED: Final = "died"
"""Stands in place of a fault for the death of a member that nobody ordered."""
NETWORK: Final = "network"
"""The id of what a network does by itself, without a fault."""
STANDSTILL: Final = "still-"
"""How the ids of pauses begin that no step ordered."""
NEVER_COUNTED: Final = (DIED, NETWORK, "resume", "consume")
"""What is told as a fault and is none, or undoes one."""
KILLS: Final = ("crash", "restart", DIED)
"""Faults that end an incarnation."""
UNDONE_BY: Final = {"pause": "resume", "stall": "consume"}
"""Faults that hold a member, and the step that ends all faults of that kind."""
CHANGES_SETTINGS: Final = "set-attribute"
MAKES_COPIES: Final = ("duplicate", "rule")
KEEPS_APART: Final = ("partition", "cut")
"""Faults that keep members apart while they last, so that they cannot end in one view."""
VERIFIER: Final = "VERIFY_SUSPECT2"
"""The protocol that asks a member whether it lives before a view leaves it out."""

EPSILON: Final = 1e-6
"""Times that differ by at most so many seconds count as equal: sums of floats are not exact."""
UNCONFIRMED: Final = 1e9
"""Seconds within which a change was made that nobody confirmed."""
CLOCKS_AGREE: Final = 0.5
"""Clocks that differ by at most so many seconds count as one: a machine's wall clock may step."""
INFINITY: Final = float("inf")

FLAGS: Final = {
    OOB: "OOB",
    0x02: "DONT_BUNDLE",
    NO_FC: "NO_FC",
    0x08: "NO_RELIABILITY",
    DONT_LOOPBACK: "DONT_LOOPBACK",
    0x20: "FIRST",
    0x40: "RESET",
    FRAGMENT: "FRAGMENT",
}
"""By bit: the name of a flag, as in a witness."""
