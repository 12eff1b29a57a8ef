"""Pods and allocations: which pod gets which slices, when, and how they come back.

    controller  watches and writes; runs in the one process that leads
    dispatcher  decides: told what is there, gives orders; no network
    ledger      who was promised what (reservations), rebuilt from the API server at start
    quarantine  objects that could not be handled
    longest_waiting  GPUs reserved for the pod that has waited longest
    wants       the slices that a pod needs; patches what is written to it; words what is said of it, by the teller
    specs       writes what is promised into the Instaslice objects
    requests    what kube-scheduler would count for a pod: CPU, memory, storage and the rest
    admission   whether a node's state, taints and labels let a pod in
    rooms       what is left on each node beside what is charged to it
    scheduling  what else the scheduler looks at: volumes, other pods, spread, host ports
    taints      the taint of managed nodes
    autoscaling placeholders that show node autoscalers what pods wait for; shapes of nodes they could add
    doctor      what must hold, checked on a live cluster and in tests; explain says why a pod waits

The stock scheduler has the last word about where a pod runs, and it speaks only after we have cut the slices and pinned
the pod to their node. So requests, admission, rooms and scheduling repeat rules of kube-scheduler exactly, from its
source and checked against the running program: a pod that we pin where the scheduler will not bind it holds slices for
nothing.
"""
