"""Our way to talk to an API server: thin, typed, on aiohttp and msgspec.

    config     where the server is and who we are          cache      all objects of a kind, indexed
    transport  HTTP: retries, rate limit, errors           watch      keeps a cache true
    client     the verbs                                   queue      keys to look at, each once
    resource   a kind: its address and its struct          lease      one leader among replicas
    meta, core the structs                                 events     say it on the object

A controller is a Cache and a Reflector a kind, handlers that add keys to a Queue, and workers that read the caches and
write through the Client; a TaskGroup around all of it, so that what fails ends the process. Knows nothing of GPUs.
"""
