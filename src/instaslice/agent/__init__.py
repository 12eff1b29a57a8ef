"""The node: makes and destroys the slices that the controller promised there, and reports what is.

decision   what one GPU needs next, and what to report of it: pure
worker     carries that out on one GPU, one call at a time
node       all GPUs of one node, and the status of its Instaslice object
report     the part of a status that has changed, as a patch
resources  what a node advertises
emulation  GPUs played for nodes that have none, with faults on demand
faults     how those faults are written on a node
fleet      many nodes in one process: watches, queue, writes
kubelet    the messages of the kubelet's own APIs
"""
