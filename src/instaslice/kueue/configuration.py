"""Kueue's own configuration, as far as it decides what a slice costs: `resources` of its `Configuration`.

Pure. A Job is charged from its template, where NVIDIA's names stand; a plain pod as it is stored, which is after our
webhook: our names and `gpu.das.com/mem`. Kueue first leaves out what an excluded prefix matches and then replaces, so:

    a Job's template        nvidia.com/mig-1g.5gb: 1                          -> gpu.das.com/mem: 5
    a pod                   gpu.das.com/mig-1g.5gb: 1, gpu.das.com/mem: 5     -> gpu.das.com/mem: 5
    either, by memory only  gpu.das.com/mem: 8                                -> gpu.das.com/mem: 8
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from instaslice.api import names
from instaslice.errors import BadInput
from instaslice.geometry import Model, ProfileName
from instaslice.geometry.models import known

API_VERSION: Final = "config.kueue.x-k8s.io/v1beta2"
KIND: Final = "Configuration"


def charged_gb(models: Iterable[Model] = ()) -> dict[str, int]:
    """The resource names by which users ask for slices of these models, of all known ones by default, in the order of
    their sizes → the GB that a slice is charged. The number is the one in the name, whatever the model."""
    profiles = {ProfileName.parse(profile.name) for model in (models or known()) for profile in model.profiles}
    by_size = sorted(profiles, key=lambda each: (each.gb, each.compute, each.extra))
    return {names.nvidia_resource_name(each): each.gb for each in by_size}


def charging(models: Iterable[Model] = ()) -> dict[str, Any]:
    """The value of `resources` in Kueue's configuration."""
    replaced = [_replaced(resource, gb) for resource, gb in charged_gb(models).items()]
    # GPU memory is replaced by itself. Kueue 0.18 takes the resources of a template in no particular order and adds to
    # a sum only what it replaces: memory that one container asks for could overwrite what the slices of another cost.
    return {
        "excludeResourcePrefixes": [names.RESOURCE],
        "transformations": [*replaced, _replaced(names.MEMORY, 1)],
    }


def configuration(models: Iterable[Model] = ()) -> dict[str, Any]:
    """The part of Kueue's Configuration that is ours to say, as a document."""
    return {"apiVersion": API_VERSION, "kind": KIND, "resources": charging(models)}


def _replaced(resource: str, gb: int) -> dict[str, Any]:
    # A profile whose memory nobody has published is named 0gb. It costs nothing, as the pod that asks for it.
    return {"input": resource, "strategy": "Replace", "outputs": {names.MEMORY: str(gb)}}


def merged(present: Mapping[str, Any], models: Iterable[Model] = ()) -> dict[str, Any]:
    """A configuration with ours merged in, and everything else as it was. Safe to repeat.

    Raises BadInput where it says otherwise already: whose numbers count is for the administrator to say.
    """
    ours = charging(models)
    resources = present.get("resources") or {}
    if not isinstance(resources, dict):
        raise BadInput(f"resources is {resources!r}; it must be a map, as in Kueue's documentation")
    if resources.get("quotaCheckStrategy") == "IgnoreUndeclared":
        raise BadInput(
            "resources.quotaCheckStrategy is IgnoreUndeclared, with which Kueue accepts no excludeResourcePrefixes; "
            "remove it, and leave out by prefix what no queue covers"
        )
    rules = {each["input"]: each for each in ours["transformations"]}
    kept = []
    for each in _listed(resources, "transformations", dict):
        rule = rules.get(str(each.get("input")))
        if rule is None:
            kept.append(each)
        elif _rates(each) != _rates(rule):
            raise BadInput(
                f"resources.transformations has {each['input']} already, with another outcome ({_rates(each)}); remove "
                f"it there, so that a Job is charged like its pods ({_rates(rule)})"
            )
    prefixes = _listed(resources, "excludeResourcePrefixes", str)
    new = [each for each in ours["excludeResourcePrefixes"] if each not in prefixes]
    whole = {**resources, "excludeResourcePrefixes": [*prefixes, *new], "transformations": [*kept, *rules.values()]}
    return {**present, "resources": whole}


def _listed(resources: Mapping[str, Any], field: str, kind: type) -> list[Any]:
    """A list of the configuration. Raises BadInput where it is something else, with which Kueue does not start."""
    found = resources.get(field) or []
    if not isinstance(found, list) or not all(isinstance(each, kind) for each in found):
        items = "maps with input and outputs" if kind is dict else "names"
        raise BadInput(f"resources.{field} is {found!r}; it must be a list of {items}, as in Kueue's documentation")
    return found


def _rates(transformation: Mapping[str, Any]) -> str:
    """What a transformation charges for one of its input."""
    found = transformation.get("outputs") or {}
    if not isinstance(found, dict):
        raise BadInput(f"the outputs of {transformation['input']} are {found!r}; they must be a map of amounts")
    outputs = ", ".join(f"{name}: {amount}" for name, amount in sorted(found.items()))
    return f"{transformation.get('strategy', 'Retain')} {outputs}".strip()
