"""The command line: one file per command, imported only when it is called.

main           finds the command, prints errors in one line
demo, up, down, fetch, status   the local cluster
simulate       a fleet without a cluster
explain, doctor   why a pod waits; whether a cluster is consistent
controller, webhook, agent   our processes
terminal       what commands share: kinds of options, signals
bars           GPUs as bars of coloured cells
timeline       the states that pods have reached, and when
cluster_watch  watches pods and Instaslice objects for `timeline`
"""
