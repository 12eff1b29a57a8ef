"""Waiting for what holds a slice."""

import time

from instaslice.drivers import InUse


def destroyed(driver, doomed, within=10.0):
    """Destroys it, again and again while it is in use. How many seconds that took."""
    began = time.monotonic()
    while True:
        try:
            driver.destroy(doomed)
            return time.monotonic() - began
        except InUse:
            if time.monotonic() - began > within:
                raise
            time.sleep(0.02)
