"""How fast the ledger becomes messages in Kafka, beside a producer that only sends them.

| module | what it holds |
|---|---|
| `rig` | a Kafka broker, a PostgreSQL, ledgers and topics |
| `child` | the processes that are measured: the mirror, and the plain producer |
| `throughput` | a ledger from its beginning, by both, with the memory of the mirror |
| `away` | a broker that is away for a while under a steady stream of events |
| `sources` | the pipeline from Kafka and from the ledger |
| `results`, `report` | what was found, for programs and for people |
"""
