"""The agent of a node: creates and destroys the slices that the controller wants there, and reports what exists.

agent_process     one node or many in one process: watches and queue
served_node       one of these nodes: reconcile it, and write its status
node              all GPUs of a node, and its status from their reports
gpu_worker        carries out what a GPU needs, one call at a time
decision          what a GPU needs next, and what to report of it: pure
node_metrics      what Prometheus is given of the nodes
job_mapping       tells dcgm-exporter which pod has which slice
report            the part of a status that has changed, as a patch
usage             which slices pods still use although no allocation names them
resources         what a node advertises
gpu_source        where the GPUs of a node come from: hardware, or
emulation         emulated GPUs for nodes that have none
fault_annotation  faults of emulated GPUs, as written in an annotation
health_watch      hardware with a deadline for every call, and its health
folder_lock       one agent at a time per node
kubelet           what serves the kubelet of a real node
"""
