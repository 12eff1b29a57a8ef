"""What our users asked the API server for, from its audit log, beside what their roles grant."""

import json
from collections import defaultdict
from typing import NamedTuple

from instaslice.api import names


class Right(NamedTuple):
    """One verb on one kind; in one namespace, or in all."""

    verb: str
    group: str
    resource: str
    """With the subresource: `pods/status`."""
    namespace: str = ""

    def __str__(self):
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{'.' + self.group if self.group else ''}{where}"

    def covers(self, request):
        return self[:3] == request[:3] and self.namespace in ("", request.namespace)


def granted(roles):
    return {
        Right(verb, group, resource, namespace)
        for role in roles
        for namespace, rules in (
            ("", role.cluster),
            (names.NAMESPACE, role.own),
            (names.PLACEHOLDERS, role.placeholders),
            ("default", role.default),
        )
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def requested(log):
    """User → what it requested, whether it was allowed or not."""
    found = defaultdict(set)
    for line in log.read_text().splitlines():
        event = json.loads(line)
        about = event.get("objectRef", {})
        if "resource" in about:  # not discovery, not a version
            path = "/".join(filter(None, (about["resource"], about.get("subresource"))))
            right = Right(event["verb"], about.get("apiGroup", ""), path, about.get("namespace", ""))
            found[event["user"]["username"]].add(right)
    return found


def unused(roles, requests):
    return {str(each) for each in granted(roles) if not any(each.covers(request) for request in requests)}


def lacking(roles, requests):
    return {str(each) for each in requests if not any(right.covers(each) for right in granted(roles))}
