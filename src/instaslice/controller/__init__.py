"""Pods and allocations: which pod gets which slices, when, and how they come back.

    controller        watches and writes; runs in the one process that leads
    dispatcher        decides: gets what changed, gives orders; no network
    orders            what the dispatcher wants done
    deadlines         what is due later, in one heap
    ledger            the reservations of all pods, rebuilt from the API server at start
    reservations      what is reserved: a slice for a container, all slices of a pod for the pod
    longest_waiting   GPUs reserved for the pod that has waited longest
    quarantine        objects that could not be handled
    pod_request       what a pod asks for: its slices, what it needs of a node, its shape
    wants             the slices that a pod needs
    patches           what is written to a pod
    pod_condition     the condition and the Event of a pod
    condition_writer  writes them
    specs             writes reservations into the Instaslice objects
    requests          what kube-scheduler counts for a pod: CPU, memory, storage and the rest
    node_admission    whether a node's state, taints and labels admit a pod
    node_capacity     what is left on each node beside what is charged to it
    scheduling        what else the scheduler checks: volumes, other pods, spread, host ports
    taints            the taint of managed nodes
    autoscaling       shows node autoscalers what pods wait for
    placeholders      the pods that show it
    shapes            the kinds of node that could be added
    doctor            what must hold, checked on a live cluster and in tests
    explain           why a pod waits, or where its slices are
    errors            what the controller raises

The stock scheduler has the last word about where a pod runs, and it decides after the slices are created and the pod is
pinned to their node. So requests, node_admission, node_capacity and scheduling repeat rules of kube-scheduler exactly,
from its source and checked against the running program: a pod that we pin where the scheduler will not bind it holds
slices for nothing.
"""
