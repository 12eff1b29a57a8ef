"""The node: creates and destroys the slices that are reserved on it, and reports what exists.

decision          what one GPU needs next, and what to report of it: pure
gpu_worker        carries that out on one GPU, one call at a time
worker_context    what a worker needs from its process
node              all GPUs of one node, and the status of its Instaslice object
report            the part of a status that has changed, as a patch
usage             which slices pods still use although no allocation names them
resources         what a node advertises
health_watch      hardware for an event loop: a deadline for every call
gpu_source        where the GPUs of a node come from: hardware, or emulation
emulation         emulated GPUs for nodes that have none, with faults on demand
fault_annotation  how those faults are written on a node
served_node       one node that an agent serves
agent_process     one node or many in one process: watches, queue, writes
folder_lock       one agent at a time for the files of a node
kubelet           what serves the kubelet of a real node
"""
