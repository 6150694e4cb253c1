"""`python -m whet.cli`."""

from . import main

main()
