"""The command line: one file per command, imported only when it is called.

main           finds the command, prints errors in one line
demo, up, down, fetch, clusters   the local cluster
simulate       a fleet without a cluster
status, explain, doctor, drained   the fleet; why a pod waits; whether a cluster is consistent; whether pods hold slices
kueue          what an administrator gives Kueue
completion     what a shell needs to complete our commands
controller, webhook, agent   our processes
terminal       kinds of options, signals, and what the demo draws
"""
