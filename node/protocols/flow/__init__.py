"""UFC and MFC: a fast sender does not overrun a slow receiver. Credits in bytes; keeps G5.

UFC counts unicasts per receiver, MFC multicasts, where the slowest member decides. Every limit is a
total in the sender's own count (see node/core/credits.py). The receiver names it, unasked, when
little is left of the last one, and whenever it is asked.

Why a pair cannot disagree for long. The sender's count never runs backwards: whoever it meets, or
meets again, starts where the count of *all* its bytes stands. So nothing tells meetings apart, and
nothing needs to: a CREDIT from before is below the limit that holds, and changes nothing. The
receiver may have missed the meeting, or the sender; it may know no count, or a smaller one than is
right. It then names too little, or nothing: the sender stops at its limit, and asks. A CREDIT_REQ
says "I have sent `lo` bytes in all, and seqno `mark` was the last of them". When the receiver has
taken that seqno, everything up to `lo` was taken, or will never come: that *is* its count, exactly.
It settles on it and names a full budget above it. So bytes that were lost with a connection,
skipped, or taken while nobody counted cost nothing for longer than one block.

A seqno belongs to a connection, and may be lost with it. So each time that a question leaves, the
sender looks at its stream. While the connection lives the question stays as it is, but for how much
of it is acked: a receiver that dropped its window believes that. Once it has ended, the question is
made anew: all bytes sent so far, and where the stream stands now, or, where no connection followed,
seqno 0 of the first that may. That is reached at once. What a receiver has settled on so holds all
bytes of connections before, and it counts none of those that come late.

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
