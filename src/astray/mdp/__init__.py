"""What the learner sees: metres, steps, context, memory and familiarity, dynamics."""
