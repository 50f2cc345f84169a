"""Scores or counts trips in jobs, which any executor can run; only this process writes.

A job is what a worker gets at a time: the trips of some agents. It is cut from a *slab*, which is a group of trips
that is sorted by agent. Agents are sorted by a hash of their names, so that a job reads few shards of a fleet, and
several runs can share the agents.

A job changes nothing. It reads the model's file and returns a table, or the rows of agents, and this process writes
them. So if a worker is lost, another one repeats its job; and if a run is killed, the next run does only what is
missing: it skips trips that are counted already, and finds the tables of finished jobs.
"""
