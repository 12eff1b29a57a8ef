"""The discrete-event simulator: a fleet, a workload and a policy in; acceptance, waits and occupancy out.

No cluster and no clock: time is whole milliseconds that the events carry, randomness is a seeded `random.Random`, and
placing is done by the same `Placer` that the controller uses.

fleets       which GPUs, from flags or a file
jobs         what arrives: one pod with its slices, its time and its life
mixes        which pods, in which shares
fractions    a part of a GPU, turned into the smallest profile that is at least as much
workloads    where jobs come from: Poisson arrivals, a fill-up, a trace
alibaba, migbench   two public trace formats
fluid        how much of a mix fits when packing is ideal: what load 1.0 means
simulation   the events
occupancy, histogram, samples, tally   what is measured, in bounded memory
outcome      the results of one run, and of several runs of one policy
comparison   several policies on the same jobs
bound        what no policy can exceed (extra `bound`)
summary      a comparison as rows, for the terminal and the page
report       the HTML page
errors       what can be wrong with the input
"""
