"""The node: makes and destroys the slices that the controller promised there, and reports what is.

decision   what one GPU needs next, and what to report of it: pure
worker     carries that out on one GPU, one call at a time
node       all GPUs of one node, and the status of its Instaslice object
report     the part of a status that has changed, as a patch
resources  what a node advertises
machines   where the GPUs of a node come from: hardware, or
emulation  GPUs played for nodes that have none, with faults on demand
faults     how those faults are written on a node
watched    hardware whose health is heard from a thread
fleet      one node or many in one process: watches, queue, writes
seats      which seat of the kubelet's is whose slice: pure
seating    the kubelet's side of a real node: hands out seats, learns who holds them
holdings   who holds which seat, by the kubelet's word
usage      which slices pods still use although no allocation names them
plugin     one resource as a device plugin
registration  keeps the device plugins registered with the kubelet
places     where the kubelet and the runtime have their folders
cdi        what a container is given, as files for its runtime
wiring     what a container needs to use a slice
files      files that are whole or absent, whenever the process ends
kubelet    the messages of the kubelet's own APIs
"""
