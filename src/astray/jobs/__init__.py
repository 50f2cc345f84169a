"""Jobs: any executor scores or counts the trips of some agents; only this process writes.

A job is what one process gets at a time: the trips of some agents, out of a *slab*, which is a group of trips that is
sorted by agent. Agents come in the order of a hash of their names, so that a job touches few rows of a fleet's
directory, and a run can leave the agents of other parts to other runs.

A job changes nothing. It reads the model's file and returns a table, or the rows of agents, and this process writes
them. So if a worker is lost, another one repeats its job; and if a run is killed, the next run does only what is
missing: it skips trips that are counted already, and finds the tables of the jobs that were finished.
"""
