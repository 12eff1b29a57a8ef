"""What the controller raises by itself."""


class Deposed(Exception):
    """Another wrote what only one may write. Not an InstasliceError: nothing that retries may catch it, so that it
    ends the process, and the next one starts from what is there."""
