"""Pods and allocations: which pod gets which slices, when, and how they come back.

    controller  watches and writes; runs in the one process that leads
    dispatcher  decides: told what is there, gives orders; no network
    orders      what the dispatcher wants done
    agenda      deadlines, in one heap
    ledger      who was promised what, rebuilt from the API server at start
    promises    the reservation of a pod: a slice for each of its containers
    quarantine  objects that could not be handled
    line        who waits, in which order
    patience    room kept for the pod that has waited too long
    asks        what a pod asks for: its slices, what it needs of a node, its shape
    wants       the slices that a pod needs
    patches     what is written to a pod
    words       the condition and the Event of a pod
    teller      writes them
    specs       writes what is promised into the Instaslice objects
    requests    what kube-scheduler would count for a pod: CPU, memory, storage and the rest
    admission   whether a node's state, taints and labels let a pod in
    rooms       what is left on each node beside what is charged to it
    scheduling  what else the scheduler looks at: volumes, other pods, spread, host ports
    taints      the taint of managed nodes
    autoscaling  shows node autoscalers what pods wait for
    placeholders  the pods that show it
    shapes      the kinds of node that could be added
    doctor      what must hold, checked on a live cluster and in tests
    explain     why a pod waits, or where its slices are
    errors      what the controller raises

The stock scheduler has the last word about where a pod runs, and it speaks only after we have cut the slices and pinned
the pod to their node. So requests, admission, rooms and scheduling repeat rules of kube-scheduler exactly, from its
source and checked against the running program: a pod that we pin where the scheduler will not bind it holds slices for
nothing.
"""
