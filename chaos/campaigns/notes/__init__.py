"""What the design notes promise of their protocols, measured."""
