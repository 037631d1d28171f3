"""Sockets: what carries the frames of a stack. No protocol decision is made here."""
