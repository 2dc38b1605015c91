"""GraphQL over the views: a schema made from the configuration, and what answers it.

graphql-core parses, validates and runs queries and mutations. What is done for every message of a
subscription or every row of a query is compiled once from the selection set instead.
"""
