"""Programs of others as members: the rig plays scenarios on them, and judges what they write."""
