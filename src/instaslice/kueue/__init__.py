"""Kueue, as far as it concerns slices: which of its objects stand between a pod and its slice.

objects  Kueue's kinds as typed structs, with only what we read

Above `api`, below the processes: controller, doctor and command line read the same structs.
"""
