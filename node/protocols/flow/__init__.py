"""UFC and MFC: a fast sender does not overrun a slow receiver. Credits in bytes; keeps G5.

UFC counts unicasts per receiver, MFC multicasts, where the slowest member decides. Every limit is a
total in the sender's own count (see node/core/credits.py). The receiver names a new limit when
little is left of the last one, and whenever the sender asks.

Why a pair cannot disagree for long. The sender's count never runs backwards: for a receiver that
the sender meets, or meets again, the count begins at *all* bytes sent so far. So nobody needs to
tell meetings apart: a CREDIT from before is below the limit that holds, and changes nothing. The
receiver may have missed the meeting, or the sender; the receiver may know no count, or one that is
too small. It then names too low a limit, or none: the sender stops at its limit, and asks. A
CREDIT_REQ says "I have sent `lo` bytes in all, and seqno `mark` was the last of them". When the
receiver has taken that seqno, everything up to `lo` was taken, or will never come: `lo` is exactly
its count. It settles on `lo`, and names a full budget above it. So bytes that were lost with a
connection, skipped, or taken while nobody counted cost credits for no longer than one wait.

A seqno belongs to a connection, and may be lost with it. So each time that a question is sent, the
sender looks at its stream. While the connection is open, the question stays the same, except for
how many messages are unacked: a receiver that dropped its window goes by that number. Once the
connection has ended, the sender asks a new question: all bytes sent so far, and where the stream
ends now, or, if no connection followed, seqno 0 of the next one, which is reached at once. So the
count on which a receiver has settled includes all bytes of earlier connections, and the receiver
does not count those bytes when they come late.

Why it is never too much. The receiver's count is at most what it took (until it settles, it counts
nothing; when it settles, all that is counted was taken, or ended with its connection; later it adds
what it takes), and so no more than `max_credits` of one meeting are sent and not taken (P-33). Why
nobody waits for ever: a sender that waits sends nothing more, the seqno it named is delivered,
given up by the window below, or ends with its connection, and question and answer are repeated
until one of each arrives (P-34, P-09).
"""

from stormcast.node.protocols.flow.config import FlowConfig, HistoricalFlow
from stormcast.node.protocols.flow.control import FlowControl
from stormcast.node.protocols.flow.mfc import Mfc
from stormcast.node.protocols.flow.ufc import Ufc
from stormcast.node.protocols.flow.windows_below import WindowsBelow

__all__ = ["FlowConfig", "FlowControl", "HistoricalFlow", "Mfc", "Ufc", "WindowsBelow"]
