"""What meters, tables, windows and event time must come to, computed the plain way.

Nothing here is clever or fast, and nothing here knows the product: the standard library, and a
pattern engine for filters, are all it imports. It is what the product is compared with, so it must
be easier to believe than the product.

| module | what it holds |
|---|---|
| `history` | the ledger as plain dictionaries, and what must be true of it |
| `amounts`, `instants`, `periods` | exact decimals, times as text, calendar periods |
| `definitions`, `facts` | what a meter is, what it counts and how that adds up |
| `meters` | the rules of meters: counters, adjustments, the change log |
| `tables`, `timetypes` | streams of events, how they are read, and the rules of tables |
| `eventtime` | watermarks and the order in which a stream is released |
| `window_definitions`, `windows`, `window_rows` | what a window is, its rules, and what it shows |
| `filters` | what a `where` means |
| `filters` | what a `where` means: true, false or unknown |
| `fingerprint` | one text, and one hash, for what meters came to |
| `vectors` | the shared vector files, read into these shapes |
"""
