"""The programs that members are compared with: JGroups and Aeron, each run by a class of ours."""
