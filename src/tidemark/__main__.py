"""`python -m tidemark` is `tidemark`."""

from tidemark.cli import main

main()
