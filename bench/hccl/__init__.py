"""Collectives of the simulated runtime beside gloo's and what two processors can do at most."""
