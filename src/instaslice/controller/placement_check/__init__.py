"""Kueue's AdmissionCheck: a workload is admitted only when its slices can be placed, and their places are held for it.

workload_pods   the pods that a workload will have
workload_holds  the places that are held for them, and which pod takes which
retries         when a workload that was refused comes back
decisions       which workloads are Ready, and which have to Retry; without a network
kueue_watch     watches Kueue's objects and writes the decisions

Optional: without the flag `--admission-check` nothing here is called, and nothing of Kueue is watched.
designs/0019-admission-check.md has the reasons.
"""
