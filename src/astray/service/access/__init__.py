"""Access: tokens and login sessions, the guard that every request passes, and limits for clients."""
