"""The process `stormcast node`: a member with settings, metrics and a workload."""
