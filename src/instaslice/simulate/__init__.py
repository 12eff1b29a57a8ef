"""The discrete-event simulator: a fleet, a workload and a policy in; acceptance, waits and occupancy out.

No cluster and no clock: time is whole milliseconds that the events carry, randomness is a seeded `random.Random`, and
pods are placed by the same `Placer` that the controller uses.

fleets       which GPUs, from flags or a file
jobs         what arrives: one pod with its slices, its time and its life
mixes        which pods, in which shares
workloads    where jobs come from: Poisson arrivals, a fill-up, a trace
ramp         how much of its load a run meets
alibaba      Alibaba's trace format
migbench     MIGBench's trace format
fractions    the profile for a part of a GPU, as traces state it
fluid        how much of a mix fits with ideal packing: the definition of load 1.0
simulation   the events
occupancy    how many GPUs were in which state for how long
tally        counts of pods by what they request
histogram    waits in bounded memory
samples      the history of a run at evenly spaced times
outcome      the result of a run, and of all runs of a policy
comparison   several policies on the same jobs
sizing       how many nodes a workload needs
bound        what no policy can exceed (extra `bound`)
settings     what determines a result, and the command that repeats it
void_flags   flags that another makes void
summary      a comparison as text
report       a comparison as JSON and as an HTML page
errors       what can be wrong with the input
"""
