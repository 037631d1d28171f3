"""The `stormcast` command. The product itself is in `node`, `chaos` and `bench`."""
