"""Jobs: trips of some agents are scored, or counted, by whatever executor there is, and only this process writes.

A job is what one process is given at a time: some trips with all that belong to their agents in a *slab*, the trips
that are sorted by agent together. Agents come in the order of a hash of their names, so that a job touches few rows of
a fleet's directory, and a run can leave all agents but those of its part to others.

A job changes nothing: it reads the model's file and returns a table, or the rows of agents, which are written here. So
a job that is lost with its worker is done again by another one; and a run that was killed is run again and does only
what is missing: trips that are counted already are left out, and tables that were finished are kept until their run is.
"""
