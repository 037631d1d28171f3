"""The numbers and words of a trace that the pipeline depends on (docs/trace-format.md)."""

from __future__ import annotations

from typing import Final

RIG: Final = 0
"""The short id of the rig."""
GROUP: Final = 0
"""The peer of what is sent to everybody."""

UNICAST: Final = ("UNICAST", "UNICAST2", "UNICAST3", "UNICAST4")
MULTICAST: Final = ("NAKACK2", "MCAST")
"""Protocols that number what goes to the group: once per sender, whoever receives it."""

OOB: Final = 0x01
NO_FC: Final = 0x04
DONT_LOOPBACK: Final = 0x10
FRAGMENT: Final = 0x80

SAYS_BOTH_ENDS: Final = 2
"""The version of traces from which on they say what applications offered and were handed."""

# `stream` of a conn event.
SENDER_CLOSING: Final = 2
SENDER_REMOVED: Final = 3
RECEIVER_OPEN: Final = 5
RECEIVER_REMOVED: Final = 7

# `stream` of a credit event.
NAMED: Final = 1
BELIEVED: Final = 2
ASKED: Final = 3

RECEIVE_WINDOW: Final = (3, 4)
"""`stream` of a gauge event: messages and bytes that a receive window holds."""

# `stream` of a delivered, handed, requested, suspect and view event.
WHOLE: Final = 0
JOINED: Final = 1
REPAIR: Final = 0
JOINING: Final = 1
CONFIRMED: Final = 2
REGULAR: Final = 0

KILLS: Final = ("crash", "restart")
"""Faults that end an incarnation."""
UNDONE_BY: Final = {"pause": "resume", "stall": "consume"}
"""Faults that hold a member, and the step that lets all of a kind go."""
CHANGES_SETTINGS: Final = "set-attribute"
MAKES_COPIES: Final = ("duplicate", "rule")
KEEPS_APART: Final = ("partition", "cut")
"""Faults that leave nothing to agree on while they last."""
VERIFIER: Final = "VERIFY_SUSPECT2"
"""With it in the stack, nobody is put out unheard."""

EPSILON: Final = 1e-6
"""Seconds by which two times may differ and still be one: sums of floats are not exact."""
CLOCKS_AGREE: Final = 0.5
"""Seconds by which two clocks may differ and still be one: wall clocks of one machine step."""
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
"""As a witness shows them."""
