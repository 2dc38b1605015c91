"""The commands. Each module holds those of one subject and is loaded when one of them is used.

program       the list of commands, and how each of them ends
outcome       exit codes, and errors as people and programs read them
output        text for people, JSON for programs
asking        one question to a server
graphql       one question in GraphQL
answers       what a server says when it does not do as asked
stopping      being told to stop
options       options that commands share: which configuration, which server

configuring   init, check
schema        schema: with spark_questions
keys          keygen
serving       up, serve
pipelining    pipeline: with long_work and logs
landing       land
sending       send: with sent_lines, resume, refusals and progress
importing     import
tailing       tail: with event_text
status        status
causality     causality: with timeline and event_text
usage         usage, adjustments, errors: with listing
explaining    explain: with explanations
verifying     verify
triggers      triggers: with trigger_questions and listing
ledger        migrate, confirm-clock
"""

from __future__ import annotations

import sys


def main() -> None:
    """The program `tidemark`."""
    try:
        from tidemark.cli.program import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        # While the program was still being loaded, or had just done its work.
        code = 130
    sys.exit(code)
