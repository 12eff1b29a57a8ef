"""Admission: what a pod that asks for slices is turned into, and which pods are turned away.

    asks       what each container asks for, read and checked        review        what the API server sends and gets
    largest    what the largest node could hold                      server        answers it over HTTPS
    mutation   the JSON patch: pure, no network                      certificates  our authority and when it is renewed
    manifests  how the API server is told of us                      keeper        Secret, caBundle and live TLS context
    policy     what users may not do to the pods we changed  errors  what can be wrong with a pod that asks for slices

Only pods that name a slice ever reach the server: `matchConditions` in the configuration keep the others away, so a
webhook that is down holds up nobody else.
"""
