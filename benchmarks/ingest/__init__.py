"""How fast events get into the ledger, beside the limits of the machine, in one run.

`python -m benchmarks.ingest --help` says what can be measured.

    workload      the events that are sent, and the requests they are sent in
    load          the load generator: a process of its own, as cheap as it can be
    services      the processes that are measured, and what they use
    echo          a limit: a server that only answers
    raw_copy      a limit: COPY into the ledger's own table
    rig           what stands ready for a whole run, and how much is measured
    throughput    the API at three shapes, with and without duplicates, against the limits
    growth        the same throughput when the ledger is small and when it is large
    memory        the server's memory when more is sent than can be stored
    costs         what one event costs in the CPU, step by step
    machine       what the figures were measured on
    results       everything that was found, and what of it was promised
    report        the results as a person reads them
"""
