"""How faults are done to real packets: nft, nfqueue and tc, each for the sites of one agent."""
