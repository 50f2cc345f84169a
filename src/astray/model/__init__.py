"""The model, which is a reward and a memory for each agent: how it is learned, used and stored."""
