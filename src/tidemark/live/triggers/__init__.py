"""Triggers: a row that enters or leaves a condition becomes one event in a durable outbox.

definition    what a trigger is and what it may be called
transitions   which changes of a view are a MATCH or an UNMATCH; pure
event_ids     the one id of such an event
payloads      the bytes that are delivered, made once
conditions    the filters of a trigger, compiled
port          what a store of triggers can do
programs      how the stores ask their databases, written once for `sqlite` and `postgres`
registration  makes triggers, and keeps those of the configuration as it declares them
evaluation    follows the log of changes and fills the outbox
leading       one process at a time does so
"""
