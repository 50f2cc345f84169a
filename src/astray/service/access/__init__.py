"""Access: tokens and sessions, the guard that every request passes, and bounds on what a client may ask for."""
