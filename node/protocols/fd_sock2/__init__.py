"""FD_SOCK2: each member keeps a connection to its neighbour; when that closes, the neighbour is
gone. Notices crashed processes at once, but no hung ones and no cut cables: FD_ALL3 does.

The neighbour is the next member in the ring of the view. A member that refuses, or does not answer,
is suspected and skipped, so a row of dead neighbours is found in one walk. Suspicions are sent to
everybody and repeated until a view without the suspects; the member that would coordinate without
the suspects reports them to the other protocols.

Differences from JGroups: a member that leaves says so to its left neighbour, which then does not
suspect it when the connection closes. A member that was cleared is tried again at once only if the
last try is `suspect_msg_interval` ago, so a port that always refuses costs two messages per
interval and not per round trip. What was found is sent after `connect_timeout`, even while the walk
goes on.
"""

from stormcast.node.protocols.fd_sock2.config import FdSock2Config
from stormcast.node.protocols.fd_sock2.fd_sock2 import FdSock2

__all__ = ["FdSock2", "FdSock2Config"]
