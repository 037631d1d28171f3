"""The pytest plugin: faults and a cluster for anybody's tests."""
