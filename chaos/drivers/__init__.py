"""Drivers, which do faults to real packets: nft, nfqueue and tc, each for all sites of an agent."""
