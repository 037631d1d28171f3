"""Members in pods: a pod is a keeper with its member, and an agent, in one network. Wherever pods
are, a run steers them in the same way; `Place` is what differs."""
