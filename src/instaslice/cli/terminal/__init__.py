"""What commands read from and show to their user; no module here is a command.

finite_range    numbers on the command line
object_name     names of Kubernetes objects
gpu_model       GPU models
completions     what the shell completes a word to
command_group   commands that are imported when they are called
quantity        amounts of a resource
cluster_options  options that say which cluster
given_flags     flags that the user wrote, and those without effect
program_source  options that say where the programs of a local cluster come from
late_progress   a progress bar that appears after three seconds
signals         run until SIGTERM or Ctrl-C
observing       options of metrics, health and logs
bars            GPUs as bars of coloured cells
timeline        the states that pods have reached, and when
missing_grant   what an administrator runs so that a user may see what a command shows
documents       JSON and YAML for programs
plain_text      text of a cluster in one line, without control characters
explanations    why pods wait, as text and as a table
explained_workloads  what is read to explain the pods of a Deployment, a StatefulSet or a Job
kueue_lines     why Kueue holds a workload, as text
held_workloads  what is read of Kueue to say so
ages            how long ago something was
plain_table     tables of plain text
fleet_picture   the fleet, for `instaslice status`
gpu_lines       its GPUs, as bars or with a character per memory slice
fleet_watch     the same at every change: drawn again, as lines or as documents
fleet_changes   what has changed in it, line by line
cluster_watch   watches pods and Instaslice objects for `timeline`
"""
