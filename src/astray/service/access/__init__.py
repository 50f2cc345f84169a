"""Controls access: tokens, login sessions, the guard that checks every request, and limits for clients."""
