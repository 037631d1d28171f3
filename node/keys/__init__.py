"""Keys of a cluster: who has one can be a member, and nobody else can.

`cluster_keys` makes and reads them, `seals` seals and opens frames by them, `replays` refuses what
came before. Imported only where a key is given: `cryptography` takes time and memory.
"""
