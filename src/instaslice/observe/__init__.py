"""What an operator on call sees of a process: metrics, health endpoints, logs.

    metrics         every metric: its name, what it means, its labels, and who has it
    registry        gives them to prometheus-client: what is read at a scrape, and what is counted
    api_calls       counts the requests of our Kubernetes client
    endpoints       serves /metrics, /healthz and /readyz
    connections     limits who is connected to a server of ours, and for how long without a request
    fair_semaphore  shares what is limited between addresses
    access          who may read the metrics
    certificates    what a server of ours serves with
    reference       the tables of docs/metrics.md
    logs            one line per event, as text or JSON

Knows nothing of pods and slices: each process says what is to be read from its state. There is no global registry, so
two processes, or two tests, can live in one interpreter.
"""
