"""The detectors: one agent or one pool (detector), a fleet (fleet), and what they are made of."""
