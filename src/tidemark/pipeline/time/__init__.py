"""Event time: what an event's time is, how far a stream's time has come, and its order.

- `registry`: how times are written, each way a function on Spark columns.
- `messages`: the time of a record that holds several messages.
- `plans`: the two ways to tell time, and what each stream is set to.
- `watermarks`: how far the time of each tenant in each stream has come, commit by commit.
- `reorder`: which events are late, which are released, when, and in which order.
- `buffer`: the events that wait.
- `stage`: all of these together, from one batch to the next.
- `ordered`: a stream written to files in the order of its time.
"""
