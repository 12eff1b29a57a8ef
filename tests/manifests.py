"""Pods as a user writes them, for tests that create them on a server or read them as JSON.

Typed pods for unit tests: `fitting.py`.
"""


def container(name="main", *, limits=None, requests=None, **more):
    """Limits and requests as they stand in JSON, every other keyword is a field."""
    resources = {field: given for field, given in (("limits", limits), ("requests", requests)) if given}
    return {"name": name, "image": "none", **({"resources": resources} if resources else {}), **more}


def pod(name, *, namespace=None, labels=None, annotations=None, limits=None, requests=None, containers=None, **spec):
    """One container with these limits and requests, or `containers` in its place; every other keyword is of the
    spec. What is None is left out."""
    told = {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}
    if containers is None:
        containers = [container(limits=limits, requests=requests)]
    return {
        "metadata": {field: given for field, given in told.items() if given is not None},
        "spec": {"containers": containers, **spec},
    }
