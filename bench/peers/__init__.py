"""The programs that members are compared with: JGroups and Aeron, by a class of ours each."""
