"""Pods that nobody schedules and no kubelet will ever run: only the test changes them."""

import asyncio

import manifests

from instaslice.kube.core import PODS
from instaslice.kube.meta import Key


def pod(namespace, name, **labels):
    return manifests.pod(name, namespace=namespace, labels=labels, schedulerName="nobody")


async def make(client, namespace, names, at_once=50):
    room = asyncio.Semaphore(at_once)

    async def one(name):
        async with room:
            await client.create(PODS, pod(namespace, name))

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(one(name))


async def label(client, namespace, name, value):
    return await client.merge(PODS, Key(namespace, name), {"metadata": {"labels": {"step": value}}})


async def remove(client, namespace, name):
    await client.delete(PODS, Key(namespace, name), grace_seconds=0)
