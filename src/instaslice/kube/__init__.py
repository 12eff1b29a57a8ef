"""Our way to talk to an API server: thin, typed, on aiohttp and msgspec.

    config       where the server is and who we are        cache       all objects of a kind
    connections  HTTP/1.1, by aiohttp's client             watch       keeps a cache in sync
    transport    retries, rate limit, errors               queue       keys to reconcile, each once
    client       the verbs                                 lease       one leader among replicas
    resource     a kind: its address and its struct        events      Events on objects
    meta, core   the structs                               storage     those of volumes
    lines        a stream cut into lines                   clock       time, injected
    quotas       what limits a namespace's pods            quantities  `500m`, `1.5Gi`
    limits       rate limit and backoff
    errors       what can go wrong                         coalescing_writer  one patch in flight per object
    workloads    what creates pods                      observer           what a client reports of its requests
    heartbeat    a Lease that shows that a process runs

A controller is a Cache and a Reflector per kind, handlers that add keys to a Queue, and workers that read the caches
and write through the Client; a TaskGroup around all of it, so that what fails ends the process. Knows nothing of GPUs.
"""
