"""Kueue, as far as it concerns slices: which of its objects stand between a pod and its slice.

objects         Kueue's kinds as typed structs, with only what we read
configuration   Kueue's own configuration, by which each slice is charged once
queues          the manifests of queues that count GPU memory
snapshot        what the API server holds of Kueue, as far as the caller may read it
workload_state  how far a workload has come, whose it is, how much it asks for
queue_position  in which order Kueue considers pending workloads
quota_standing  what a quota has, what is in use, who holds it
obstacle        what keeps a workload from ever being admitted, and the remedy
hold            all of that about one workload, for `explain`

Above `api`, below the processes: controller, doctor and command line read the same structs.
"""
