"""Puts the stages together: each module is a composition that reads top to bottom like the flow.

server         HTTP, ledger and what is read of the views
live           GraphQL, subscriptions, triggers and webhooks
kept_running   what begins a part anew that an error has ended
pipeline       Spark, ledger and views, kept running
verification   the views made anew from the ledger, beside those that are live
high_water     how far the views have been
store_loop     where the stores live while Spark's threads work
"""
