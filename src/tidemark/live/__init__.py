"""What the world sees of the views as they change: filters, subscriptions, triggers, webhooks.

`filters` says which rows somebody wants, in Python and in SQL alike. `engine` turns the commits of
a view into what each subscriber must hear, `graphql` is the language they ask in, `access` says
what they may see. `triggers` note when a row enters or leaves a condition, and `webhooks` deliver
that. Nothing here keeps rows: the views store does, and its log of changes is what is followed.
"""
