"""Admission: what a pod that asks for slices is turned into, and which pods are rejected.

    review               what the API server sends and what it gets back
    server               answers it over HTTPS
    mutation             the JSON patch: pure, no network
    manifests            the webhook's registration at the API server
    quota_notice         says at start which quotas count nothing any more
    policy               what users may not do to the pods we changed
    agent_policy         what the agent of one node may not do to the objects of others
    uninstall_policy     why the chart is not uninstalled while pods hold slices
    certificates         our authority and when it is renewed
    certificate_sources  where the live TLS context comes from: a Secret that replicas share

Only pods that name a slice ever reach the server: `matchConditions` in the configuration keep the others away, so a
webhook that is down affects no other pod.
"""
