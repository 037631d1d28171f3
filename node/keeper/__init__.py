"""The process `stormcast keep`: the parent of a member in a container, controlled over HTTP."""
