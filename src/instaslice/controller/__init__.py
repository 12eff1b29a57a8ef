"""Pods and allocations: which pod gets which slices, when, and how they come back.

    requests    what kube-scheduler would count for a pod: CPU, memory, storage and the rest
    admission   whether a node's state, taints and labels let a pod in
    rooms       what is left on each node beside what is charged to it
    shapes      the kinds of node that an autoscaler could add more of
    placeholders, autoscaling   how it learns that it should
    taints      keeps other pods off the nodes that are ours

The stock scheduler has the last word about where a pod runs, and it speaks only after we have cut the slices and pinned
the pod to their node. So requests, admission and rooms repeat its rules exactly, from its source and checked against
the running program: a pod that we pin where the scheduler will not bind it holds slices for nothing.
"""
