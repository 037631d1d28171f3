"""How settings are read and written: quantities, and YAML in which every value has its place."""
