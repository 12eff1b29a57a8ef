"""Kueue, as far as it concerns slices: which of its objects stand between a pod and its slice.

objects        Kueue's kinds as typed structs, with only what we read
configuration  Kueue's own configuration, by which each slice is charged once
queues         the manifests of queues that count GPU memory

Above `api`, below the processes: controller, doctor and command line read the same structs.
"""
