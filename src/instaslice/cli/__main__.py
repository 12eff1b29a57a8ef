"""`python -m instaslice.cli` is the command `instaslice`."""

from instaslice.cli.main import main

main()
